"""Behind a real nginx that is configured with nothing but `proxy_pass`, and as it should be."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from embedserver import free_port
from test_keys_cli import served
from webworld import Web, problem

from chargehand.testing import eventually

UNPACKED = f"{sys.prefix}/nginx/usr/sbin"
"""The folder into which `make test` unpacks Debian's nginx if there is no other."""
NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:{UNPACKED}")
if NGINX is None:
    WHY_NOT = "there is no nginx (Debian: apt-get install nginx-light)"
    sys.__stderr__.write(f"\nSKIPPED: the tests behind a reverse proxy: {WHY_NOT}\n")  # type: ignore[union-attr]
    pytest.skip(WHY_NOT, allow_module_level=True)

CONFIG = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{ }}
http {{
  access_log off;
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
  uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  server {{ listen 127.0.0.1:{plain}; location / {{ proxy_pass {url}; }} }}
  server {{
    listen 127.0.0.1:{right};
    location / {{
      proxy_pass {url};
      proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    }}
  }}
}}
"""


@pytest.fixture
def proxies(web: Web, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The addresses of a proxy that rewrites Host, and of one that passes it on."""
    plain, right = free_port(), free_port()
    with served(web) as url:
        (tmp_path / "nginx.conf").write_text(CONFIG.format(folder=tmp_path, plain=plain, right=right, url=url))
        command = [str(NGINX), "-c", str(tmp_path / "nginx.conf"), "-e", str(tmp_path / "nginx.log")]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        try:
            addresses = (f"http://127.0.0.1:{plain}", f"http://127.0.0.1:{right}")
            eventually(lambda: all(map(_up, addresses)), 20, what="nginx is up")
            yield addresses
        finally:
            process.terminate()
            process.wait(20)


def _up(address: str) -> bool:
    try:
        return httpx.get(f"{address}/healthz").status_code == 200
    except httpx.TransportError:
        return False


def test_nobody_gets_in_through_a_proxy_and_those_with_the_token_do(  # spec: SE-1 SE-2 EV-4
    web: Web, proxies: tuple[str, str]
) -> None:
    key = {"Authorization": f"Bearer {web.token}"}
    for address in proxies:
        for method, path in (("GET", "/api/v1/info"), ("POST", "/api/web/worker/pause"), ("GET", "/metrics")):
            problem(httpx.request(method, f"{address}{path}"), 401, "key-needed")
            forged = {"X-Forwarded-For": "127.0.0.1", "X-Real-IP": "127.0.0.1", "Host": "localhost"}
            problem(httpx.request(method, f"{address}{path}", headers=forged), 401, "key-needed")
        assert httpx.get(f"{address}/api/v1/info", headers=key).status_code == 200
        with httpx.stream("GET", f"{address}/api/events?topics=system:health", headers=key, timeout=20) as stream:
            lines = stream.iter_lines()
            assert next(line for line in lines if line.startswith("data: "))
    assert not web.hand.pauses()


def test_a_browser_signs_in_through_a_proxy_or_is_told_why_not(
    web: Web, proxies: tuple[str, str]
) -> None:  # spec: SE-2
    plain, right = proxies

    def sign_in(address: str, **headers: str) -> httpx.Response:
        body, sent = {"key": web.token}, {"Origin": address, **headers}
        return httpx.post(f"{address}/api/web/session", json=body, headers=sent)

    assert "proxy_set_header Host $http_host" in problem(sign_in(plain), 403, "cross-site")["detail"]
    for answer in (sign_in(right), sign_in(plain, **{"Sec-Fetch-Site": "same-origin"})):
        assert answer.status_code == 200, answer.text
        assert "HttpOnly" in answer.headers["set-cookie"]
