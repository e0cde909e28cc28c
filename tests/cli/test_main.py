import subprocess
import sys

import pytest

import rekindle
from rekindle.cli import main, verbs
from rekindle.errors import RekindleError


def test_help_answers_without_torch():
    code = (
        "import sys\n"
        "from rekindle.cli import main\n"
        "try:\n    main(['--help'])\n"
        "except SystemExit as stop:\n    assert not stop.code, stop.code\n"
        "assert 'torch' not in sys.modules, 'torch was loaded for --help'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(verb in done.stdout for verb in verbs())


@pytest.mark.parametrize(("words", "code"), [(["--help"], 141), (["list"], 1)])  # 1: rich ends the program itself
def test_output_that_nobody_reads_on_is_no_traceback(words, code):
    command = [sys.executable, "-u", "-m", "rekindle", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        said = process.stderr.read().decode()
    assert (process.returncode, said) == (code, "")


def test_it_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "rekindle", "--version"], capture_output=True, text=True)
    assert done.stdout.strip() == f"rekindle {rekindle.__version__}"


def test_no_word_is_a_call_for_help(capsys):
    with pytest.raises(SystemExit) as stop:
        main([])
    assert not stop.value.code
    assert "demo" in capsys.readouterr().out


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"rekindle {rekindle.__version__}"


def test_our_errors_are_three_lines_and_no_traceback(capsys):
    assert main(["list", "no_such_method"]) == 2
    said = capsys.readouterr()
    lines = said.err.strip().splitlines()
    assert [line.partition(":")[0] for line in lines] == ["expected", "got", "what to do"]
    assert not said.out


def test_other_errors_keep_their_traceback(monkeypatch):
    def broken(**_):
        raise ValueError("a mistake of ours")

    monkeypatch.setattr("rekindle.cli.verbs", lambda: {"demo": lambda: broken(), "list": lambda: None})
    with pytest.raises(ValueError, match="a mistake of ours") as caught:
        main(["demo"])
    assert not isinstance(caught.value, RekindleError)


def test_unknown_verb_stops_with_code_2():
    with pytest.raises(SystemExit) as stop:
        main(["no_such_verb"])
    assert stop.value.code == 2
