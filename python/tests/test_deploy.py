"""The files with which a server is installed: the unit, the container file and the chart.

The chart is rendered by helm where it is installed; otherwise each template is read as YAML with
placeholders for its actions, which finds wrong YAML and a wrong form but no wrong action.
"""

from __future__ import annotations

import configparser
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

yaml = pytest.importorskip("yaml")

RELEASE = pathlib.Path(__file__).parents[2] / "release"
CHART = RELEASE / "helm" / "lockstep"

VALUES = [
    "--set",
    "tls.existingSecret=features-tls",
    "--set",
    "rootPassword.existingSecret=features-root",
]


def without_actions(template: str) -> str:
    """A template with placeholders for what its actions insert."""
    lines = []
    for line in template.splitlines():
        indented = re.fullmatch(r"\s*\{\{-? .*\| nindent (\d+) -?\}\}", line)
        if indented:
            lines.append(" " * int(indented[1]) + "placeholder: x")
        elif not re.fullmatch(r"\s*(\{\{.*\}\}\s*)+", line):
            lines.append(re.sub(r"\{\{.*?\}\}", "placeholder", line))
    return "\n".join(lines)


def manifests(*values: str) -> list[dict]:
    """The objects of the chart."""
    if shutil.which("helm"):
        command = ["helm", "template", "features", str(CHART), *values]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return [found for found in yaml.safe_load_all(text) if found]
    texts = [without_actions(path.read_text()) for path in CHART.glob("templates/*.yaml")]
    return [found for text in texts for found in yaml.safe_load_all(text) if found]


def by_kind(objects: list[dict]) -> dict[str, dict]:
    return {found["kind"]: found for found in objects}


@pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not installed")
def test_helm_finds_nothing_wrong():
    command = ["helm", "lint", "--strict", str(CHART), *VALUES]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not installed")
def test_what_is_missing_is_named():
    command = ["helm", "template", "features", str(CHART)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0 and "tls.existingSecret is required" in done.stderr
    made = ["--set", "tls.certificate=c,tls.key=k,rootPassword.value=p"]
    secrets = [found for found in manifests(*made) if found["kind"] == "Secret"]
    assert [secret["data"] for secret in secrets] == [
        {"tls.crt": "Yw==", "tls.key": "aw=="},
        {"password": "cA=="},
    ]


def test_the_chart_has_one_server_with_a_volume_and_probes():
    found = by_kind(manifests(*VALUES))
    assert {"StatefulSet", "Service", "ConfigMap", "PodDisruptionBudget"} <= set(found)
    spec = found["StatefulSet"]["spec"]
    assert spec["replicas"] == 1
    assert spec["volumeClaimTemplates"][0]["spec"]["accessModes"] == ["ReadWriteOnce"]
    pod = spec["template"]["spec"]
    (server,) = pod["containers"]
    for probe, path in [
        ("startupProbe", "/healthz"),
        ("livenessProbe", "/healthz"),
        ("readinessProbe", "/readyz"),
    ]:
        get = server[probe]["httpGet"]
        assert (get["path"], get["scheme"]) == (path, "HTTPS")
    for container in pod["initContainers"] + pod["containers"]:
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    mounted = {mount["name"] for mount in server["volumeMounts"]}
    volumes = {volume["name"] for volume in pod["volumes"]} | {"data"}
    assert mounted <= volumes


def test_the_settings_of_the_chart_are_settings(tmp_path):
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    config = tmp_path / "lockstep.toml"
    config.write_text(values["config"])
    command = [sys.executable, "-m", "lockstep", "serve", "--config", str(config), "--print-config"]
    (server,) = by_kind(manifests(*VALUES))["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    given = [text for text in server["args"] if re.match(r"(http|postgres|tls)\.", text)]
    assert len(given) == 4
    for text in given:
        command += ["--set", text]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert 'listen = "0.0.0.0:7431"' in done.stdout
    assert 'listen = "0.0.0.0:7432"' in done.stdout
    ports = {port["name"] for port in server["ports"]}
    service = by_kind(manifests(*VALUES))["Service"]["spec"]
    assert ports == {port["targetPort"] for port in service["ports"]}


def test_the_chart_is_of_this_version():
    cargo = (RELEASE.parent / "Cargo.toml").read_text()
    version = re.search(r'^version = "(.+)"$', cargo, re.MULTILINE)[1]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)


def test_the_unit_is_hardened_and_runs_the_server():
    unit = configparser.ConfigParser(strict=False)
    unit.optionxform = str
    unit.read_string((RELEASE / "systemd" / "lockstep.service").read_text())
    service = unit["Service"]
    assert service["Type"] == "notify"
    assert service["ExecStart"].startswith("/usr/bin/lockstep serve /var/lib/lockstep/")
    assert service["SuccessExitStatus"] == "3"
    for key, value in [
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
        ("CapabilityBoundingSet", ""),
        ("SystemCallFilter", "@system-service"),
        ("UMask", "0077"),
    ]:
        assert service[key] == value
    # Expressions are compiled to machine code.
    assert "MemoryDenyWriteExecute" not in service


def test_the_container_runs_as_nobody_s_user():
    lines = (RELEASE / "container" / "Containerfile").read_text().splitlines()
    words = [line.split()[0] for line in lines if line and not line.startswith(("#", " "))]
    assert words[0] == "FROM" and words.index("USER") < words.index("ENTRYPOINT")
    assert "USER 7431:7431" in lines and "STOPSIGNAL SIGTERM" in lines
