"""Pictures, other files, artifacts and what else becomes an event."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.facade.jobs import events, metrics, run, samples
from tests.loopback.backend import LoopbackBackend

pytestmark = pytest.mark.long  # a process with the real package for each line of the table


def test_pictures_and_pages_are_files_of_the_experiment(tmp_path: Path) -> None:
    """The content is at `rlship/media/<sha256>.<extension>`, with an event that names it at its step; equal ones are
    one file, a list is several events, and no temporary file is left behind.
    """
    job = run(
        tmp_path,
        """
        import json, os, tempfile
        import numpy as np
        from PIL import Image
        wandb.init()
        picture = wandb.Image(np.arange(48, dtype=np.uint8).reshape(4, 4, 3), caption="four")
        temporary = picture._path
        wandb.log({"pictures": [picture, picture], "loss": 1.0}, step=0)
        wandb.log({"page": wandb.Html("<b>x</b>", inject=False)}, step=1)
        wandb.log({"raw": Image.new("RGB", (2, 2))}, step=2)
        Image.new("L", (2, 2)).save("own.png")
        wandb.log({"own": wandb.Image("own.png")}, step=3)
        wandb.log({"t": wandb.Table(columns=["p", "n"], data=[[wandb.Image("own.png"), 1]])}, step=4)
        wandb.finish()
        print(json.dumps([os.path.exists(temporary), os.path.exists("own.png"), picture._path]))
        """,
    )
    found = job.file()
    media = {event["step"]: event["attrs"] for event in events(found, "media")}
    assert {step: (facts["key"], facts["type"]) for step, facts in media.items()} == {
        0: ("pictures", "Image"),
        1: ("page", "Html"),
        2: ("raw", "Image"),
        3: ("own", "Image"),
    }
    assert media[0]["caption"] == "four"
    assert len(events(found, "media")) == 5
    folder = job.experiment / "rlship"
    for facts in media.values():
        data = (folder / facts["path"]).read_bytes()
        assert facts["path"] == f"media/{hashlib.sha256(data).hexdigest()}.{facts['path'].rpartition('.')[2]}"
        assert len(data) == facts["size"]
    assert (folder / media[1]["path"]).read_text() == "<b>x</b>"
    (row,) = samples(found, "t")
    assert row["row"]["p"]["path"] == media[3]["path"]
    assert len(list((folder / "media").iterdir())) == 4
    assert job.values() == [False, True, str(folder / media[0]["path"])]
    assert metrics(found)[0] == (0, {"loss": 1.0})


def test_what_is_too_large_or_changes_leaves_a_gap(tmp_path: Path) -> None:
    """A file above 16 MiB is named and not kept, a file whose content changes after the call is not either; the row of
    the step counts a gap.
    """
    job = run(
        tmp_path,
        """
        import hashlib
        wandb.init()
        with open("big.html", "w") as file:
            file.write("x" * (16 * 2**20 + 1))
        wandb.log({"big": wandb.Html("big.html", inject=False), "x": 1}, step=0)
        page = wandb.Html("<b>1</b>", inject=False)
        page._sha256 = hashlib.sha256(b"another").hexdigest()
        wandb.log({"page": page, "x": 2}, step=1)
        """,
    )
    found = job.file()
    big, _ = events(found, "media")
    assert "16777216 are allowed" in big["attrs"]["dropped"]
    gaps = [(record["from"], record["n"]) for record in found if record.get("kind") == "gap"]
    assert sum(n for _, n in gaps) == 2
    assert "its content changed" in job.err
    assert not list((job.experiment / "rlship" / "media").glob("*"))


def test_artifacts_and_saved_files_are_named_and_not_copied(tmp_path: Path) -> None:
    """`log_artifact`, `log_model` and `save` are events with paths and sizes; what they return is usable."""
    job = run(
        tmp_path,
        """
        import json, os
        run = wandb.init()
        with open("weights.bin", "wb") as file:
            file.write(b"w" * 1000)
        artifact = wandb.Artifact("model-x", type="model", metadata={"a": 1})
        artifact.add_file("weights.bin")
        logged = wandb.log_artifact(artifact, aliases=["best"])
        logged.wait()
        run.log_artifact("weights.bin", name="other", type="file")
        wandb.log_model("weights.bin", name="m")
        wandb.save("weights.bin", policy="now")
        run.alert("Loss is high", "very", level=wandb.AlertLevel.WARN)
        run.watch(object(), log="all", log_freq=10)
        run.mark_preempting()
        wandb.log({"x": 1})
        """,
    )
    found = job.file()
    first, second, third = (event["attrs"] for event in events(found, "artifact"))
    assert (first["name"], first["type"], first["aliases"]) == ("model-x", "model", ["best"])
    assert [(one["name"], one["size"]) for one in first["files"]] == [("weights.bin", 1000)]
    assert (second["path"], second["size"], second["name"]) == (str(tmp_path / "weights.bin"), 1000, "other")
    assert (third["type"], third["name"]) == ("model", "m")
    (saved,) = events(found, "saved")
    assert (saved["attrs"]["size"], saved["attrs"]["policy"]) == (1000, "now")
    (alert,) = events(found, "alert")
    assert alert["attrs"] == {"title": "Loss is high", "text": "very", "level": "WARN"}
    (watch,) = events(found, "watch")
    assert watch["attrs"] == {"log": "all", "log_freq": 10}
    assert events(found, "preempting")
    assert job.err.count("wandb.watch") == 1
    assert all(event["stream"] for event in found if event.get("kind") == "event")


def test_an_artifact_that_was_logged(tmp_path: Path) -> None:
    """It answers what a job asks of one that has arrived, and its `save` logs it to the run, which goes on. What
    `log_artifact` returns of a path can be linked.
    """
    job = run(
        tmp_path,
        """
        run = wandb.init(project="p", entity="e")
        artifact = wandb.Artifact("model-x", type="model")
        with artifact.new_file("a.txt") as file:
            file.write("a")
        assert run.log_artifact(artifact, aliases=["best"]) is artifact
        assert artifact.wait().version == "v0" and artifact.aliases == ["latest", "best"]
        assert (artifact.name, artifact.qualified_name) == ("model-x", "e/p/model-x:v0")
        artifact.link("models/x")
        artifact.save()
        wandb.Artifact("other", type="data").save()
        run.link_artifact(run.log_artifact("job.py"), "models/y")
        wandb.log({"x": 1})
        assert wandb.run is run and type(artifact).__name__ == "Artifact"
        """,
    )
    found = job.file()
    names = [event["attrs"].get("name") for event in events(found, "artifact")]
    assert names == ["model-x", "model-x", "other", None]
    assert [event["attrs"]["target"] for event in events(found, "linked")] == ["models/x", "models/y"]
    assert metrics(found) == [(0, {"x": 1})]


def test_files_that_are_saved_and_restored(tmp_path: Path) -> None:
    """`save` returns the paths of the files, and its event has them. `restore` opens a file of the run's folder; of one
    that is nowhere it returns None, as the client does.
    """
    job = run(
        tmp_path,
        """
        import json, os
        run = wandb.init()
        for name in ("a.pt", "b.pt"):
            open(name, "w").close()
        saved = [wandb.save("*.pt"), run.save("a.pt", policy="now"), run.save("none*")]
        with open(os.path.join(run.dir, "c.pt"), "w") as file:
            file.write("c")
        print(json.dumps([saved, wandb.restore("c.pt").read(), run.restore("d.pt"), wandb.restore("d.pt")]))
        """,
    )
    a, b = (str(tmp_path / name) for name in ("a.pt", "b.pt"))
    assert job.values() == [[[a, b], [a], []], "c", None, None]
    assert events(job.file(), "saved")[0]["attrs"]["files"] == [a, b]
    assert job.err.count("restore: W&B has no file 'd.pt'") == 1


def test_charts_are_their_tables(tmp_path: Path) -> None:
    """A chart of `wandb.plot` is logged as its table, as W&B does it."""
    job = run(
        tmp_path,
        """
        wandb.init()
        table = wandb.Table(columns=["x", "y"], data=[[1, 2], [3, 4]])
        wandb.log({"line": wandb.plot.line(table, "x", "y")}, step=3)
        """,
    )
    assert [one["row"] for one in samples(job.file(), "line_table")] == [{"x": 1, "y": 2}, {"x": 3, "y": 4}]


def test_figures_become_pictures(tmp_path: Path) -> None:
    """A figure of matplotlib, a frame of pandas and a figure of plotly go through the client's own types. The three
    packages stand in here by modules of their names.
    """
    for name, body in {
        "matplotlib": "class Figure:\\n    def savefig(self, out, format): pass\\n",
        "pandas": "class DataFrame:\\n    columns = ['a']\\n    rows = [[1], [2]]\\n",
        "plotly": "class Figure:\\n    pass\\n",
    }.items():
        (tmp_path / f"{name}.py").write_text(body.replace("\\n", "\n"))
    job = run(
        tmp_path,
        """
        import sys
        sys.path.insert(0, ".")
        import matplotlib, pandas, plotly
        made = []
        real_image, real_table = wandb.Image, wandb.Table
        def image(figure):
            made.append(type(figure).__module__)
            return wandb.Html("picture", inject=False)
        def table(columns=None, data=None, dataframe=None):
            made.append(type(dataframe).__module__)
            return real_table(columns=dataframe.columns, data=dataframe.rows)
        wandb.Image, wandb.Table = image, table
        wandb.Plotly = image
        wandb.init()
        wandb.log({"m": matplotlib.Figure(), "f": pandas.DataFrame(), "p": plotly.Figure()}, step=0)
        import json
        print(json.dumps(sorted(made)))
        """,
    )
    assert job.values() == ["matplotlib", "pandas", "plotly"]
    assert [event["attrs"]["key"] for event in events(job.file(), "media")] == ["m", "p"]
    assert [one["row"] for one in samples(job.file(), "f")] == [{"a": 1}, {"a": 2}]


def test_what_reads_goes_to_the_real_client(tmp_path: Path) -> None:
    """`use_artifact` asks the real client, for the run's entity and project, and one line says so; an artifact that the
    job has is returned as it is. A dummy key, of which some frameworks ask, is not sent.
    """
    job = run(
        tmp_path,
        """
        import json, os
        print(os.environ.get("WANDB_API_KEY"))
        asked = []
        class Api:
            def artifact(self, name, type=None):
                asked.append([name, type, os.environ.get("WANDB_API_KEY")])
                return self
        wandb.Api = Api
        run = wandb.init(project="p", entity="team")
        run.use_artifact("data:latest", type="dataset")
        wandb.use_artifact("other/p/data:v1")
        mine = wandb.Artifact("mine", type="model")
        assert run.use_artifact(mine) is mine
        print(json.dumps(asked))
        """,
    )
    assert job.out.splitlines()[0] == "0" * 40
    assert job.values() == [["team/p/data:latest", "dataset", None], ["other/p/data:v1", None, None]]
    assert job.err.count("reads from W&B") == 1


def test_the_key_of_the_user_stays(tmp_path: Path) -> None:
    """A key in the environment or in a netrc file is left alone."""
    job = run(tmp_path, "import os; print(os.environ['WANDB_API_KEY'])", WANDB_API_KEY="mine")
    assert job.out == "mine\n"
    (tmp_path / "netrc").write_text("machine api.wandb.ai login user password secret\n")
    job = run(tmp_path, "import os; print(os.environ.get('WANDB_API_KEY'))", NETRC=str(tmp_path / "netrc"))
    assert job.out == "None\n"


def test_the_key_of_a_login_is_that_of_the_real_client(tmp_path: Path) -> None:
    """`login(key=)` gives the real client that key: the server lets `Api` in by it, after zeros stood in its place,
    and processes that the job starts find it.
    """
    with LoopbackBackend() as backend:
        job = run(
            tmp_path,
            f"""
            import json, os
            given = os.environ["WANDB_API_KEY"]
            logged_in = wandb.login(key={backend.api_key!r})
            run = wandb.init(project="p")
            again = wandb.login()
            wandb.log({{"x": 1}})
            key = os.environ["WANDB_API_KEY"]
            print(json.dumps([given, logged_in, again, key, wandb.Api().api_key]))
            """,
            WANDB_BASE_URL=backend.url,
        )
    assert job.values() == ["0" * 40, True, False, backend.api_key, backend.api_key]
    assert job.rows() == {0: {"x": 1.0}}


def test_without_a_key_the_real_client_says_so(tmp_path: Path) -> None:
    """The zeros are never what the real client logs in by: `Api` raises what it raises without a key, and a run that
    cannot be recorded finds none.
    """
    job = run(
        tmp_path,
        """
        import os
        wandb.setup()  # which reads the key
        try:
            wandb.Api()
        except wandb.errors.UsageError as error:
            print(error)
        print(os.environ.get("WANDB_API_KEY"), wandb.sdk.wandb_setup.singleton().settings.api_key)
        """,
    )
    assert job.out.splitlines()[0].startswith("No API key configured"), job.out
    assert job.out.splitlines()[1] == "None None"
    job = run(
        tmp_path,
        """
        import os, rlship.facade.wandb as facade
        facade.begin = None  # as with a package that lacks what is needed
        os.environ["WANDB_MODE"] = "online"
        try:
            wandb.init()
        except Exception as error:
            print(type(error).__name__, error)
        """,
        check=False,
    )
    assert "No API key configured" in job.out, job.err


def test_a_sweep_trains_with_its_values(tmp_path: Path) -> None:
    """With WANDB_SWEEP_ID the run stays the real client's, with the sweep's values in its config, and is recorded
    beside it; one line says so.
    """
    (tmp_path / "sweep.yaml").write_text("wandb_version: 1\nlr:\n  value: 0.25\n")
    job = run(
        tmp_path,
        """
        import json
        run = wandb.init(config={"lr": 1.0, "seed": 7})
        wandb.log({"loss": run.config.lr * 2})
        run.config.update({"more": 1})
        run.summary["best"] = 1
        print(json.dumps([run.config.lr, run.config["seed"], type(run).__name__, run.disabled]))
        wandb.finish()
        """,
        WANDB_SWEEP_ID="s1",
        WANDB_SWEEP_PARAM_PATH=str(tmp_path / "sweep.yaml"),
        WANDB_MODE="offline",
    )
    assert job.values() == [0.25, 7, "Run", False]
    (job.experiment,) = tmp_path.glob("run-sweep-*")  # each run of a sweep has a folder of its own
    assert job.rows() == {0: {"loss": 0.5}}
    assert job.err.count("belongs to a sweep") == 1
    (file,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    from rlship_sidecar.sinks.wandb.file import history

    assert [row["loss"] for row in history(file)] == [0.5]
    assert json.dumps(job.file())


def test_scalars_of_tensorboard(tmp_path: Path) -> None:
    """With `sync_tensorboard` a scalar that the process gives to a SummaryWriter is logged at its step, and the writer
    writes it too; without it nothing is logged.
    """
    code = """
        from tensorboardX import SummaryWriter
        wandb.init(sync_tensorboard={wanted}, save_code=True)
        writer = SummaryWriter("board")
        for step in range(3):
            writer.add_scalar("train/loss", 0.5 * step, step)
            writer.add_scalar(tag="train/lr", scalar_value=0.25, global_step=step)
        writer.close()
        wandb.log({{"own": 1.0}}, step=3)
        """
    for wanted in (True, False):
        folder = tmp_path / str(wanted)
        folder.mkdir()
        job = run(folder, code.format(wanted=wanted))
        scalars = {step: {"train/loss": 0.5 * step, "train/lr": 0.25} for step in range(3)} if wanted else {}
        assert job.rows() == scalars | {3: {"own": 1.0}}
        assert list((folder / "board").glob("events.*"))
