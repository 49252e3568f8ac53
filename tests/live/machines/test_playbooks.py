"""The roles as they are written; test_facility.py lets them act on machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import in_ansible

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]


def test_the_roles_pass_ansible_lints_production_profile(ansible: Path) -> None:
    done = in_ansible(ansible, "ansible-lint", "--offline", "--profile", "production")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_published_cluster_is_a_sound_playbook(ansible: Path) -> None:
    done = in_ansible(ansible, "ansible-playbook", "--syntax-check", "site.yml")
    assert done.returncode == 0, done.stdout + done.stderr
