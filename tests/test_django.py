"""`chargehand.django` in a real project of Django, with real workers; and the page about it, in such a project."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import snippets
from paths import ROOT, python_path

FILES = {
    "manage.py": """
import os, sys
from django.core.management import execute_from_command_line
os.environ["DJANGO_SETTINGS_MODULE"] = "site_settings"
execute_from_command_line(sys.argv)
""",
    "site_settings.py": """
from pathlib import Path
SECRET_KEY = "not a secret"
INSTALLED_APPS = ["shop", "chargehand.django"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": Path(__file__).parent / "site.db"}}
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
CHARGEHAND = "shop.jobs:hand"
""",
    "shop/__init__.py": "",
    "shop/models.py": """
from django.db import models

class Order(models.Model):
    state = models.TextField(default="new")
""",
    "shop/migrations/__init__.py": "",
    "shop/jobs.py": """
from chargehand import Chargehand
hand = Chargehand()
ship = hand.crew("ship", "shop.handlers:Ship", workers=1)
""",
    "shop/handlers.py": """
from chargehand import Handler, Job
import chargehand.django  # sets Django up, before models are imported
from django.db import close_old_connections
from shop.models import Order

class Ship(Handler[int, str]):
    def perform(self, job: Job[int]) -> str:
        close_old_connections()
        Order.objects.filter(pk=job.payload).update(state="shipped")
        return "shipped"
""",
    "try_it.py": """
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "site_settings"
import django
django.setup()
from django.db import transaction
from chargehand import PayloadError
from chargehand.django import on_commit
from shop.jobs import hand, ship
from shop.models import Order

try:
    with transaction.atomic():
        lost = on_commit(ship, Order.objects.create().pk)
        raise ZeroDivisionError
except ZeroDivisionError:
    print("rolled back:", Order.objects.count(), len(hand.jobs()))
try:
    on_commit(ship, b"")
except PayloadError:
    print("refused at the call")
with transaction.atomic():
    order = Order.objects.create()
    ref = on_commit(ship, order.pk, label="order")
    print("before:", len(hand.jobs()))
print("after:", ref.job().state.value, ref.job().label)
at_once = on_commit(ship, order.pk)
with hand.running():
    print("result:", ref.wait(30), at_once.wait(30))
order.refresh_from_db()
print("order:", order.state)
""",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text.lstrip())
    return tmp_path


def python(project: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": python_path(project), "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, *words], cwd=project, env=environment, capture_output=True, text=True, check=False
    )


def test_jobs_follow_the_transactions_of_django(project: Path) -> None:
    """A rollback enqueues nothing, a commit does, and a handler uses models."""
    for command in (("makemigrations", "shop"), ("migrate", "-v", "0")):
        done = python(project, "manage.py", *command)
        assert done.returncode == 0, done.stderr
    done = python(project, "try_it.py")
    assert done.stdout.splitlines() == [
        "rolled back: 0 0", "refused at the call", "before: 0", "after: queued order", "result: shipped shipped",
        "order: shipped",
    ], done.stderr  # fmt: skip


@pytest.mark.full
def test_manage_py_runs_the_command_line(project: Path) -> None:
    checked = python(project, "manage.py", "chargehand", "check")
    assert checked.returncode == 0, checked.stderr
    assert "shop.handlers:Ship" in checked.stdout
    assert python(project, "manage.py", "chargehand", "jobs", "enqueue", "ship", "1").returncode == 0
    listed = python(project, "manage.py", "chargehand", "jobs", "list", "--json")
    assert '"queue": "ship"' in listed.stdout, listed.stderr
    diagnosed = python(project, "manage.py", "chargehand", "doctor", "--json")
    assert json.loads(diagnosed.stdout)["store"] == str(project / "shop" / "chargehand.db"), diagnosed.stdout
    settings, named = (project / "site_settings.py").read_text(), 'CHARGEHAND = "shop.jobs:hand"\n'
    for given, word, message in (
        ("", "work", "the setting CHARGEHAND is None; must name the Chargehand object, such as 'shop.jobs:hand'"),
        ("CHARGEHAND = 'shop.jbs:hand'\n", "doctor", "'shop.jbs:hand': there is no module 'shop.jbs'"),
    ):
        (project / "site_settings.py").write_text(settings.replace(named, given))
        refused = python(project, "manage.py", "chargehand", word)
        assert refused.returncode == 2
        assert message in refused.stderr
        assert "Traceback" not in refused.stderr


def test_a_handler_without_a_set_up_of_django_is_answered_with_what_to_write(project: Path) -> None:
    handlers = project / "shop" / "handlers.py"
    handlers.write_text(handlers.read_text().replace("import chargehand.django", ""))
    checked = python(project, "manage.py", "chargehand", "check", "--json")
    assert checked.returncode == 2, checked.stderr
    assert (
        f"{project / 'shop' / 'models.py'}, line 3): write `import chargehand.django` in the module" in checked.stdout
    )
    checked = python(project, "-m", "chargehand", "check", "shop.jobs:hand", "--json")
    assert "use `python manage.py chargehand` in place of `chargehand`" in checked.stdout, checked.stderr


def test_the_package_without_it_does_not_import_django() -> None:
    script = (
        "import sys, chargehand; [getattr(chargehand, n) for n in chargehand.__all__]; print('django' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "False\n"
    )


PAGE = {
    "urls.py": """
from django.urls import path
from shop import views
urlpatterns = [path("buy", views.buy)]
""",
    "try_it.py": """
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "site_settings"
import django
django.setup()
from django.test import Client
from shop.jobs import hand, ship
from shop.models import Order

answer = Client().post("/buy")
print("answer:", answer.status_code, hand.job(answer.json()["job"]).state.value)
with hand.running():
    ship.ref(answer.json()["job"]).wait(30)
print("order:", Order.objects.get(pk=answer.json()["order"]).state)
""",
}


@pytest.mark.full
def test_the_project_of_the_documentation_works(project: Path) -> None:
    """Its files, as the page has them, with the models, the database and the addresses that it leaves to the reader."""
    files = {each.file: each.code for each in snippets.of_page(ROOT / "docs" / "how-to" / "django.md") if each.file}
    assert set(files) == {"settings.py", "shop/jobs.py", "shop/handlers.py", "shop/views.py"}
    settings = FILES["site_settings.py"] + 'ROOT_URLCONF = "urls"\nALLOWED_HOSTS = ["testserver"]\n'
    files["site_settings.py"] = settings + files.pop("settings.py")
    for name, text in (files | PAGE).items():
        (project / name).write_text(text.lstrip())
    for command in (("makemigrations", "shop"), ("migrate", "-v", "0")):
        assert python(project, "manage.py", *command).returncode == 0
    done = python(project, "try_it.py")
    assert done.stdout.splitlines() == ["answer: 202 queued", "order: shipped"], done.stderr
