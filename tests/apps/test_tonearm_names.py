"""A library whose files have names of any bytes: found, tagged, shown, listed, written and undone, each by itself."""

import asyncio
import os
from pathlib import Path

import httpx
import shelves
import tagged
from test_tonearm_app_commands import say
from test_tonearm_app_library import do_all

from tonearm import browse, catalogue, crews, report, scan, web, written
from tonearm.library import Folder
from tonearm.tagger import Tagger
from tonearm.tags import Written, rules
from tonearm.tags.playlist import m3u8

NAMES = {
    b"caf\xe9.mp3": "mp3-23", b"caf\xe8.mp3": "mp3-23", b"caf?.mp3": "mp3-23", b"\xff\xfe.flac": "flac",
    b"two\nlines\x80.opus": "opus", "cafe\u0301.m4a".encode(): "m4a", "caf\u00e9.m4a".encode(): "m4a",
}  # fmt: skip
FOLDER = b"M\xfcsik \xff"


def test_names_of_any_bytes_stay_apart_in_the_whole_library(tmp_path: Path) -> None:  # spec: TA-2, TA-5, TA-6, TA-7
    music = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + FOLDER))
    music.mkdir()
    for name, case in NAMES.items():
        tagged.make(tmp_path, case, name="song", seconds=0.2).rename(music / os.fsdecode(name))
    home = tmp_path / "home"
    library, folder = shelves.opened(home, music)
    assert {path for (path,) in library.rows("SELECT path FROM file")} == NAMES.keys()
    tagger = Tagger()
    tagger.library = library
    found = tagger.discover(None, 100)
    files = [catalogue.waiting(library, item.payload["id"], item.payload["round"]) for item in found]
    assert {file.file.name for file in files if file} == {os.fsdecode(name) for name in NAMES}
    assert len({item.label for item in found}) == len(NAMES)
    assert all(item.label and item.label.isprintable() for item in found)
    assert [item.key for item in tagger.discover(found[2].key, 2)] == [item.key for item in found[3:5]]
    shelves.hear_all(library)
    assert report.progress(library).tagged == len(NAMES)

    # page and playlists
    tracks = {track["path"].rpartition("/")[2] for track in browse.tracks(library)}
    assert {r"caf\xe9.mp3", r"caf\xe8.mp3", "caf?.mp3", r"\xff\xfe.flac", r"two\nlines\x80.opus"} < tracks
    made = m3u8("all", browse.matching(library, rules.parse("not genre:nothing")))
    assert (made.text.count("#EXTINF"), len(made.left_out)) == (0, len(NAMES)), "the folder itself is not UTF-8"
    all_crews = crews.build(home, machine=crews.Machine(2, 4 << 30))

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(web.create(all_crews, library))
        every = "/api/playlist?rule=genre:rock or not genre:rock"
        paths = ("/", "/api/tracks", "/api/tracks?text=caf", "/api/progress", "/api/errors", every)
        key = {"Authorization": f"Bearer {all_crews.hand.with_token('').removeprefix('#token=')}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=key) as client:
            return [await client.get(path) for path in paths]

    answers = asyncio.run(ask())
    assert {answer.status_code for answer in answers} == {200}
    assert len(answers[1].json()) == len(NAMES)
    all_crews.hand.close()
    assert "7 files" in say(home, "status")

    # written and undone
    mode = Folder(id=folder.id, root=folder.root, mode="full", tier="loose")
    library.change_folder(mode)
    before = {path: (tagged.packets(path), tagged.others(path)) for path in music.iterdir()}
    assert written.ask(library, mode, "write") == len(NAMES)
    assert {type(outcome) for outcome in do_all(library)} == {Written}
    assert scan.scan(library, mode) == scan.Report(files=len(NAMES))
    assert written.ask(library, mode, "undo") == len(NAMES)
    assert {type(outcome) for outcome in do_all(library)} == {Written}
    assert {path: (tagged.packets(path), tagged.others(path)) for path in music.iterdir()} == before
    library.close()
