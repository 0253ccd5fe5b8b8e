"""Models behind HTTP: the same bits whatever a server does, or a failed case that says why; secrets stay secret."""

from __future__ import annotations

import datetime
import gc
import ipaddress
import re
import ssl
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import roadworthy as rw
import roadworthy.models
from commands import call
from dark_and_bright import draw, study
from model_server import FAULTS, METADATA, PASSING, Handler, ModelServer, at_random, rows_of, serving
from roadworthy.core.errors import InputError, ModelError
from roadworthy.core.types import Batch
from roadworthy.models import isolation, load_model
from roadworthy.models.http import connection
from roadworthy.models.http.client import LONGEST_PAUSE, Effort
from roadworthy.models.isolation import IsolatedModel
from tiny import contents

SECRET = "Bearer s3cr3t-kQ7xZ2vR9mB4tW8s"
QUICK = {"timeout": 0.5, "pause": 0.005, "retries": 4, "version": "1"}


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with serving() as running:
        yield running


def some_images(count: int = 10, channels: int = 3) -> Batch:
    images = np.random.default_rng(0).integers(0, 256, (count, 8, 8, channels)).astype(np.uint8)
    return Batch(tuple(map(str, range(count))), images, np.zeros(count, np.int64))


def opened(server: ModelServer, path: str = "/predict", **settings: Any) -> Any:
    return load_model(server.url(path), name="light", **{**QUICK, **settings})


def nth(number: int, fault: str) -> Any:
    """A fault of one request alone; the first one that a model makes is its probe."""
    return lambda asked: fault if asked == number else ""


# Formats: the numbers that the server computes from the pixels arrive, whatever carries them.


@pytest.mark.parametrize(
    ("path", "settings"),
    [
        ("/predict", {}),
        ("/predict", {"format": "json", "batch": 3, "concurrency": 2}),
        ("/predict", {"format": "multipart"}),
        ("/v2/models/light", {}),
        ("/v2/models/light/versions/7/infer", {"format": "kserve", "batch": 1}),
    ],
    ids=["default", "small requests", "multipart", "kserve", "kserve by version"],
)
@pytest.mark.parametrize("channels", [3, 1])
def test_each_format_brings_the_same_numbers(
    server: ModelServer, path: str, settings: dict[str, Any], channels: int
) -> None:
    model, batch = opened(server, path, **settings), some_images(channels=channels)
    answer = model.answer(batch, 64)
    assert np.array_equal(answer.probabilities, rows_of(batch.images).astype(np.float32))
    assert (model.num_classes, model.outputs) == (2, "probabilities")
    assert max(server.sizes) <= settings.get("batch", 16)


@pytest.mark.parametrize(
    ("changes", "extensions", "settings"),
    [
        ({"shape": [-1, 8, 8, 3]}, [], {}),
        ({"datatype": "UINT8"}, [], {}),
        ({}, ["binary_tensor_data"], {}),
        ({"datatype": "UINT8", "shape": [4, 3, 8, 8]}, ["binary_tensor_data"], {}),
        ({"shape": [-1, 192]}, [], {"size": "8x8", "layout": "nhwc"}),
        ({"shape": [1, -1, -1, 3]}, [], {"output": "scores"}),
    ],
    ids=["nhwc", "uint8", "bytes", "uint8 bytes, batches of four", "flat", "single images of any size"],
)
def test_kserve_reads_type_shape_and_extensions_from_the_server(
    server: ModelServer, changes: dict[str, Any], extensions: list[str], settings: dict[str, Any]
) -> None:
    entry = {**METADATA["inputs"][0], **changes}  # type: ignore[index]
    server.metadata, server.extensions = {**METADATA, "inputs": [entry]}, extensions
    model, batch = opened(server, "/v2/models/light", **settings), some_images(6)
    assert np.array_equal(model.answer(batch, 6).probabilities, rows_of(batch.images).astype(np.float32))
    assert server.paths[-1] == "/v2/models/light/versions/7/infer"
    binary = "Inference-Header-Content-Length" in server.headers[-1]
    assert binary == bool(extensions)
    assert {*server.sizes} == ({entry["shape"][0]} if entry["shape"][0] > 0 else {8, 6})


def test_logits_are_logits(server: ModelServer) -> None:
    server.kind = "logits"
    server.fault = lambda number: ""
    with pytest.raises(InputError, match="calls them logits, but rows sum to 1: answer logits"):
        opened(server)
    server.fault = lambda number: "sums"
    model = opened(server)
    assert model.capabilities == {"probabilities", "logits"}
    answer = model.answer(some_images(), 10)
    assert answer.logits is not None
    assert answer.logits[0].tolist() == pytest.approx([0.9, 0.9])
    assert model.columns == ("probabilities", "log_odds")
    assert answer.log_odds is not None
    assert answer.log_odds[0] == 0
    assert answer.probabilities[0].tolist() == [0.5, 0.5]


def test_rows_that_the_server_calls_probabilities_sum_to_1(server: ModelServer) -> None:
    server.fault = lambda number: "sums"
    with pytest.raises(InputError, match=r"calls them probabilities, but rows sum to .*: answer rows that sum to 1"):
        opened(server)


def test_one_of_several_outputs_is_named(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Handler.kserve_answer

    def with_features(handler: Handler, rows: Any) -> Any:
        answer = own(handler, rows)
        features = {
            "name": "features",
            "datatype": "FP32",
            "shape": [len(rows), 3],
            "data": [1.0, 2.0, 3.0] * len(rows),
        }
        return {**answer, "outputs": [features, *answer["outputs"]]}

    monkeypatch.setattr(Handler, "kserve_answer", with_features)
    with pytest.raises(InputError, match=r"several outputs .* \(features, scores\): say which with `output=`"):
        opened(server, "/v2/models/light")
    assert opened(server, "/v2/models/light", output="scores").num_classes == 2


def test_the_server_s_version_counts_beside_the_user_s(server: ModelServer) -> None:
    before = opened(server, "/v2/models/light", version="mine")
    server.metadata = {**METADATA, "versions": ["8"]}
    assert before.fingerprint() != opened(server, "/v2/models/light", version="mine").fingerprint()


# Refusals before anything is asked: one sentence, and no secret in it.


@pytest.mark.parametrize(
    ("url", "settings", "says"),
    [
        ("http://me:s3cr3t-0123@127.0.0.1/p", {}, "holds a user or a password: give it in a header"),
        ("http://s3cr3t-0123@127.0.0.1/p", {}, "holds a user or a password"),
        ("http://127.0.0.1/p?api_key=s3cr3t-0123", {}, "'api_key' in the web address .* looks like a secret"),
        *(
            (f"http://127.0.0.1/p?{name}=s3cr3t-0123", {}, f"'{name}' in the web address .* looks like a secret")
            for name in (
                *("accesskey", "subscriptionKey", "SharedAccessSignature", "jwt", "bearer", "sessionid", "appid"),
                *("X-Amz-Signature", "ApiKey", "sig"),
            )
        ),
        ("http:///p", {}, "needs a host"),
        ("http://127.0.0.1:0/p", {}, "has the port 0"),
        ("http://127.0.0.1:99999/p", {}, "cannot be read"),
        ("http://127.0.0.1/a b", {}, "write it percent-encoded"),
        ("http://127.0.0.1/v3.onnx", {}, "is a web address of a file, which is not fetched"),
        ("ftp://127.0.0.1/v3", {}, "is a web address"),
        ("http://127.0.0.1/p", {"headers": {"Authorization": SECRET}}, "stands in the settings, .* env:MY_TOKEN"),
        ("http://127.0.0.1/p", {"headers": f"Authorization: {SECRET}"}, "are a mapping of names"),
        ("http://127.0.0.1/p", {"headers": [SECRET]}, "are a mapping of names"),
        ("http://127.0.0.1/p", {"headers": {"Authorization": "env:ROADWORTHY_NONE"}}, "ROADWORTHY_NONE, .* is not set"),
        ("http://127.0.0.1/p", {"headers": {"Authorization": "env:TWO_LINES"}}, "TWO_LINES, .* has a line break"),
        ("http://127.0.0.1/p", {"headers": {"Content-Length": "env:TWO_LINES"}}, "follows from the request"),
        ("http://127.0.0.1/p", {"headers": {SECRET: "env:TWO_LINES"}}, "a name that no header can have"),
        ("http://127.0.0.1/p", {"format": "grpc"}, "unknown http_format 'grpc'.*json, kserve, multipart"),
        ("http://127.0.0.1/p", {"format": "kserve"}, "write http://HOST:PORT/v2/models/NAME"),
        ("http://127.0.0.1/p", {"range": "0-1"}, "format json makes no use of `range=`"),
        ("http://127.0.0.1/p", {"ca": "ca.pem"}, "is not encrypted"),
        ("https://127.0.0.1/p", {"ca": "ca.pem"}, "ca.pem of an http model cannot be read"),
        ("http://127.0.0.1/p", {"timeout": 0}, "timeout of an http model must be a number from"),
        ("http://127.0.0.1/p", {"retries": -1}, "retries of an http model must be a whole number"),
        ("http://127.0.0.1/p", {"rate": "fast"}, "rate cannot be 'fast'"),
        ("http://127.0.0.1/p", {"concurency": 3}, "did you mean 'concurrency'"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(
    url: str, settings: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWO_LINES", f"{SECRET}\nX-Other: 1")
    with pytest.raises(InputError, match=says) as error:
        load_model(url, **settings)
    assert "s3cr3t" not in str(error.value)
    assert error.value.__cause__ is None


def test_a_secret_is_not_written_into_a_study_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["evaluate", "--model", "http://127.0.0.1/p", "--data", "d", "--write-study", "study.yaml"]
    assert "stands in the settings" in call(*words, "--header", f"Authorization={SECRET}", code=2)
    inside = {"temperature": {"http": "http://127.0.0.1/p", "headers": {"Authorization": SECRET}}}
    with pytest.raises(InputError, match="stands in the settings"):
        rw.api.study_of_evaluation(inside, "d")
    assert not [*tmp_path.iterdir()]
    (tmp_path / "env").mkdir()
    (tmp_path / "json").touch()
    call(*words, "--header", "Authorization=env:MY_TOKEN", "--format", "json", "--model-version", "3")
    entry = yaml.safe_load((tmp_path / "study.yaml").read_text())["models"]["p"]
    assert entry["headers"] == {"Authorization": "env:MY_TOKEN"}
    assert (entry["http"], entry["format"]) == ("http://127.0.0.1/p", "json")


def test_a_version_is_demanded_where_answers_are_stored(server: ModelServer, tmp_path: Path) -> None:
    data = draw(tmp_path)
    with pytest.raises(InputError, match=r"can be replaced unseen, .* give `version='TEXT'`"):
        rw.evaluate(server.url(), str(data), suite="quick", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert load_model(server.url()).version is None
    kserve = load_model(server.url("/v2/models/light"))
    assert kserve.version == "7"
    settings = [{"version": "2"}, {"version": "1", "batch": 8}, {"version": "1"}, {"format": "multipart"}]
    assert len({opened(server, **own).fingerprint() for own in settings}) == 4
    assert opened(server).fingerprint() == opened(server, concurrency=1, retries=0, timeout=9.0).fingerprint()


# What comes back.


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("rows", r"answered 11x2 to 10 images, not (10 rows of 2 classes|one row of class scores each)"),
        ("columns", r"answered 10x3 to 10 images, not 10 rows of 2 classes"),
        ("nan", r"answered NaN or infinity for 1 of 10 images"),
        ("sums", r"rows that are not probabilities \(smallest .*, sums .* to 1.8\)"),
        ("text", r"answered probabilities that are not lists of numbers"),
        ("true", r"answered probabilities that are not lists of numbers"),
        ("html", r"answered text/html, not JSON"),
        ("garbage", r"answered 28 bytes that are not JSON"),
        ("twice", r"answered JSON that has the key 'outputs' twice"),
        ("404", r"answered 404 Not Found \(.*it is tired.*\): check the path"),
        ("redirect", r"redirects to another server \(http://127.0.0.2:9\), which is not followed"),
    ],
)
@pytest.mark.parametrize("path", ["/predict", "/v2/models/light"])
def test_a_whole_answer_that_is_none_fails_at_once(server: ModelServer, path: str, fault: str, says: str) -> None:
    server.location = "http://127.0.0.2:9/predict"
    model = opened(server, path)
    server.fault = lambda number: fault
    server.forget()
    with pytest.raises(ModelError, match=says.replace("probabilities that", r".*that")) as error:
        model.answer(some_images(), 10)
    assert str(error.value).startswith(server.url(path))
    assert server.asked == 1, "asked until it fits, a fault of the model would be hidden"


@pytest.mark.parametrize("fault", PASSING)
def test_a_request_without_an_answer_is_repeated(server: ModelServer, fault: str) -> None:
    model = opened(server, timeout=0.3, retries=3)
    server.forget()
    server.fault = lambda number: fault if number < 3 else ""
    expected = rows_of(some_images().images).astype(np.float32)
    assert np.array_equal(model.answer(some_images(), 10).probabilities, expected)
    assert server.asked == 3
    server.fault = lambda number: fault
    with pytest.raises(ModelError, match=r"\(asked 4 times\)"):
        model.answer(some_images(), 10)


def test_a_slow_answer_ends_by_the_timeout_and_a_huge_one_is_cut_off(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MOST_BYTES", 2**22)
    model, patient = opened(server, retries=0, timeout=0.3), opened(server, retries=0, timeout=20)
    server.fault = lambda number: "drip"
    started = time.monotonic()
    with pytest.raises(ModelError, match=r"did not answer within 0.3 s$"):
        model.answer(some_images(), 10)
    assert time.monotonic() - started < 2
    server.fault = lambda number: "huge"
    with pytest.raises(ModelError, match=r"sends more than \d+ MiB in one answer"):
        patient.answer(some_images(), 10)


def test_redirects_stay_on_the_server(server: ModelServer) -> None:
    model = opened(server)
    server.forget()
    server.fault, server.location = nth(1, "redirect"), "/elsewhere"
    model.answer(some_images(), 10)
    assert server.paths == ["/predict", "/elsewhere"]
    with serving() as other:
        server.forget()
        server.location = other.url()
        with pytest.raises(ModelError, match="redirects to another server"):
            model.answer(some_images(), 10)
        assert not other.asked
    server.fault, server.location = lambda number: "redirect", "/predict"
    with pytest.raises(ModelError, match="redirects more than 3 times"):
        model.answer(some_images(), 10)


def test_retry_after_is_respected(server: ModelServer) -> None:
    model = opened(server)
    server.forget()
    server.fault, server.retry_after = nth(1, "503"), "1"
    model.answer(some_images(), 10)
    assert 1.0 <= server.starts[1] - server.starts[0] < 2
    server.forget()
    server.retry_after = "3600"
    with pytest.raises(ModelError, match=r"503 Service Unavailable .*asks to wait 3,600 s, longer than the 60 s"):
        model.answer(some_images(), 10)
    assert server.asked == 1


def test_pauses_double_up_to_a_limit() -> None:
    effort = Effort(pause=0.5)
    pauses = [effort.backoff(attempt) for attempt in (0, 1, 2, 3, 20)]
    bounds = [0.5, 1, 2, 4, LONGEST_PAUSE]
    assert all(bound / 2 <= pause <= bound for pause, bound in zip(pauses, bounds, strict=True))
    assert effort.backoff(0) != effort.backoff(0)


def test_concurrency_and_rate_are_honoured(server: ModelServer) -> None:
    batch = some_images(24)
    expected = rows_of(batch.images).astype(np.float32)
    server.delay = 0.02
    for concurrency in (1, 3):
        model = opened(server, concurrency=concurrency, batch=2)
        server.forget()
        askers = [threading.Thread(target=model.answer, args=(batch, 24)) for _ in range(3)]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join()
        assert (server.asked, server.most_in_flight) == (36, concurrency)
    server.delay = 0.0
    model = opened(server, rate=50, batch=2)
    server.forget()
    assert np.array_equal(model.answer(batch, 24).probabilities, expected)
    gaps = np.diff(server.starts)
    assert server.asked == 12
    assert server.starts[-1] - server.starts[0] >= 11 / 50 - 0.01, gaps


def test_the_threads_of_a_model_end_with_it(server: ModelServer) -> None:
    before = threading.enumerate()
    model = opened(server, batch=2)
    model.answer(some_images(), 10)
    threads = [thread for thread in threading.enumerate() if thread.name == "http" and thread not in before]
    assert threads
    del model
    gc.collect()
    for thread in threads:
        thread.join(5)
    assert not any(thread.is_alive() for thread in threads)


def test_a_model_that_is_replaced_meanwhile_is_noticed(server: ModelServer) -> None:
    image_model, kserve = opened(server), opened(server, "/v2/models/light")
    server.model_version = "8"
    for model, expected in ((image_model, "1"), (kserve, "7")):
        with pytest.raises(ModelError, match=rf"for the model version '8', not '{expected}'"):
            model.answer(some_images(), 10)


# Whole runs.


def http_study(data: Path, server: ModelServer, **settings: Any) -> dict[str, Any]:
    return study(data, {"light": {"http": server.url(), **QUICK, "batch": 1, **settings}})


def test_faults_at_random_change_no_bit_or_fail_a_case(server: ModelServer, tmp_path: Path) -> None:
    data = draw(tmp_path, images=8)
    healthy = contents(rw.run(http_study(data, server), out=tmp_path / "healthy").path)
    assert len([name for name in healthy if name.endswith(".parquet") and "readouts" in name]) >= 3
    outcomes, refusals = set(), list[str]()
    late = server.asked - 24  # when the check before the run is over
    for seed, faults, share, start in (
        *((0, PASSING, 0.3, 0), (21, FAULTS, 0.08, late)),
        *((22, FAULTS, 0.08, late), (3, FAULTS, 0.2, 0)),
    ):
        drawn = at_random(seed, share, faults)
        server.forget()
        server.patience, server.fault = 0.7, lambda number, drawn=drawn, start=start: number > start and drawn(number)
        out = tmp_path / str(seed)
        try:
            run = rw.run(http_study(data, server, timeout=0.5, retries=8), out=out, workers=2)
        except (InputError, ModelError) as error:  # it failed in the check before the run
            refusals.append(str(error))
            assert not out.exists()
            continue
        failures = [case.reason for case in run.record.cases.values() if case.status == "failed"]
        assert all("http://127.0.0.1" in str(reason) for reason in failures)
        stored = contents(out)
        if not failures:
            assert stored == healthy
        parts = {name for name in stored if name.startswith("readouts/") and name.endswith(".parquet")}
        assert all(stored[name] == healthy[name] for name in parts)
        outcomes.add("failed" if failures else "the same")
    assert all(re.search(r"http://127.0.0.1:\d+/predict ", sentence) for sentence in refusals)
    assert outcomes == {"the same", "failed"}, "the seeds show both"


def test_a_server_that_is_gone_costs_its_cases_alone(server: ModelServer, tmp_path: Path) -> None:
    data = draw(tmp_path)
    (tmp_path / "code.py").write_text("import numpy as np\n" + "import model_server\nanswer = model_server.rows_of\n")
    code = {"callable": f"{tmp_path}/code.py:answer", "num_classes": 2, "version": "1"}
    task = http_study(data, server, retries=1)
    task["models"]["code"] = code
    for after, cause in ((0, "not asked: http://"), (8 + 2 * 6 + 3, "http://")):
        server.forget()
        server.fault = lambda number, after=after: "500" if number > after else ""
        run = rw.run(task, out=tmp_path / f"gone-{after}", trust=True, workers=1)
        failed = {case.system: str(case.reason) for case in run.record.cases.values() if case.status == "failed"}
        assert [*failed] == ["light"]
        assert failed["light"].startswith(cause)
        assert "answered 500" in failed["light"]
        assert run.verdict().status == "inconclusive"


def test_a_server_that_answers_at_random_is_refused(server: ModelServer, tmp_path: Path) -> None:
    data = draw(tmp_path)
    server.fault = lambda number: "random"
    with pytest.raises(ModelError, match="its probabilities change by up to"):
        rw.run(http_study(data, server), out=tmp_path / "run", accept_chance=True)
    assert not (tmp_path / "run").exists()


def test_the_secret_is_in_no_file_and_no_message(
    server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(roadworthy.models, "is_foreign", isolation.is_foreign)
    monkeypatch.setenv("MY_TOKEN", SECRET)
    data = draw(tmp_path)
    task = http_study(data, server, headers={"Authorization": "env:MY_TOKEN"}, retries=0)
    server.fault = lambda number: "echo" if number > 8 + 2 * 6 + 7 else ""
    with warnings.catch_warnings(record=True) as warned:
        run = rw.run(task, out=tmp_path / "run")
    assert {headers["Authorization"] for headers in server.headers} == {SECRET}
    assert run.record.models["light"].isolated
    reasons = [str(case.reason) for case in run.record.cases.values() if case.status == "failed"]
    assert reasons
    assert (
        "answered 500 Internal Server Error (a text that is left out, as it repeats a part of a header)" in reasons[0]
    )
    written = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert any(b"env:MY_TOKEN" in content for content in written.values())
    said = "".join([*capfd.readouterr(), *(str(warning.message) for warning in warned)]).encode()
    pieces = [SECRET[start : start + 8].encode() for start in range(7, len(SECRET) - 8)]
    for path, content in {**written, tmp_path: said}.items():
        assert not any(piece in content for piece in pieces), path


def test_a_header_that_goes_unencrypted_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", SECRET)
    with (
        pytest.warns(UserWarning, match=r"the header Authorization goes to http://0.0.0.0:9/p without encryption"),
        pytest.raises(ModelError, match=r"^http://0.0.0.0:9/p cannot be reached: Connection refused$"),
    ):
        load_model("http://0.0.0.0:9/p", headers={"Authorization": "env:MY_TOKEN"}, retries=0)


def test_in_a_study_it_has_one_process_with_limits_that_its_requests_keep(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roadworthy.models, "is_foreign", isolation.is_foreign)
    here = opened(server, "/v2/models/light", version=None)
    settings = {**QUICK, "version": None, "concurrency": 2}
    model = load_model(server.url("/v2/models/light"), name="light", isolate="foreign", **settings)
    assert isinstance(model, IsolatedModel)
    assert model.fingerprint() == here.fingerprint()
    server.delay = 0.05
    server.forget()
    askers = [threading.Thread(target=model.answer, args=(some_images(64), 64)) for _ in range(3)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert (model.processes, server.most_in_flight) == (1, 2)
    assert model.limits.seconds > 5 * (0.5 + 0.08)
    model.close()
    server.metadata = {**METADATA, "versions": ["9"]}
    with pytest.raises(ModelError, match="is not the one any more that it was when it was opened"):
        model.answer(some_images(), 10)


def test_check_says_the_latency(server: ModelServer, tmp_path: Path) -> None:
    data = draw(tmp_path, images=40)
    report = call("check", "--model", server.url(), "--data", data)
    assert re.search(r"model predict \(http\): 2 classes", report)
    assert re.search(r"latency: median [\d.]+ ms a request, slowest [\d.]+ ms, of \d+", report)
    assert "speed: " in report
    assert f"address: {server.url()}" in report


# TLS: certificates are verified.


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1, signed by itself, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    own = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
    signed = builder.add_extension(own, critical=False).sign(key, hashes.SHA256())
    folder = tmp_path_factory.mktemp("tls")
    (folder / "ca.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    private = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(key.private_bytes(*private))
    return folder / "ca.pem", folder / "key.pem"


def test_a_certificate_is_verified_and_its_authority_can_be_named(
    server: ModelServer, certificate: tuple[Path, Path]
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    url = server.url().replace("http://", "https://")
    with pytest.raises(InputError, match=r"a certificate that is not trusted \(self-signed certificate\).*`ca='FILE'`"):
        load_model(url, **QUICK)
    assert not server.asked
    model = load_model(url, **QUICK, ca=str(certificate[0]))
    assert np.array_equal(
        model.answer(some_images(), 10).probabilities, rows_of(some_images().images).astype(np.float32)
    )
    with pytest.raises(ModelError, match="does not speak TLS as it should"), serving() as plain:
        load_model(plain.url().replace("http://", "https://"), **{**QUICK, "retries": 0})
    with pytest.raises(ModelError, match=r"closed the connection without an answer|sent what is not HTTP"):
        load_model(server.url(), **{**QUICK, "retries": 0})


def test_a_connection_that_the_server_closed_between_requests_is_opened_again(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "timeout", 0.05)
    model = opened(server, retries=0, concurrency=1)
    for _ in range(3):
        time.sleep(0.12)
        model.answer(some_images(), 10)


@pytest.mark.parametrize("version", ["HTTP/1.0", "HTTP/1.1"])
def test_an_answer_is_read_to_its_end_where_the_server_closes_after_each(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """Servers for development do so; the body comes after the head, when `http.client` has closed the socket."""
    monkeypatch.setattr(Handler, "protocol_version", version)
    server.closes, server.pause = version == "HTTP/1.1", 0.02
    model = opened(server, retries=0, timeout=5.0)
    answers = model.answer(some_images(), 10).probabilities
    assert answers == pytest.approx(rows_of(some_images().images), abs=1e-6)
    assert model.client.times.repeated == 0


def test_what_the_page_shows_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shlex

    import cv2

    from roadworthy.data import BuiltinDataset, Opening
    from tiny import import_text, save_onnx

    monkeypatch.chdir(tmp_path)
    root = Path(__file__).parent.parent
    page = (root / "docs" / "http.md").read_text()
    signs = BuiltinDataset("signs", Opening(size=32), n=70)
    batch = signs.batch(slice(None))
    for number, (image, label) in enumerate(zip(batch.images, batch.labels, strict=True)):
        folder = tmp_path / "signs" / "test" / f"{label:02d}"
        folder.mkdir(parents=True, exist_ok=True)
        if len([*folder.iterdir()]) < 2:
            cv2.imwrite(str(folder / f"{number}.png"), image[..., ::-1])
    save_onnx(tmp_path / "m.onnx")
    example = import_text((root / "examples" / "http_server.py").read_text(), tmp_path / "http_server.py")
    with example.make_server("m.onnx", 0) as running:
        threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
        page = page.replace("127.0.0.1:8080", f"127.0.0.1:{running.server_address[1]}")
        blocks = dict(reversed(re.findall(r"^```(\w+)\n(.*?)^```", page, re.M | re.S)))
        for line in blocks["sh"].splitlines():
            if line.startswith("roadworthy "):
                call(*shlex.split(line)[1:])
        assert (tmp_path / "runs" / "served" / "report.html").is_file()
        exec(blocks["python"], {})
        here = load_model("m.onnx").answer(batch, 64).probabilities
        for entry in yaml.safe_load(blocks["yaml"])["models"].values():
            assert np.array_equal(load_model(entry).answer(batch, 64).probabilities.argmax(axis=1), here.argmax(axis=1))
        running.shutdown()
