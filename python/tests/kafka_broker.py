"""A real Apache Kafka for tests: one node that is broker and controller, from Maven's jars.

    with Broker() as kafka:
        kafka.create_topic("clicks", partitions=3)
        kafka.produce("clicks", [{"key": "u1", "value": "{}"}, "only a value"])
        assert len(kafka.consume("clicks")) == 2

Two Java processes run for each `Broker`: the broker, and a tool that creates topics and writes
and reads records with Kafka's own clients. The tool reads one command a line from its standard
input, and kills the broker when that input ends, so that nothing outlives a killed test run.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import itertools
import json
import os
import random
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

KAFKA = "4.4.0"
_SLF4J = "1.7.36"
_JARS = Path.home() / ".cache/lockstep" / f"kafka-{KAFKA}"
_CLUSTER = "bG9ja3N0ZXAtdGVzdHMtMQ"
# Neither the compiler of much-used code nor a large heap pays in so short a life.
_LEAN = [
    "-Xms16m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Xshare:auto",
]


class KafkaError(Exception):
    """What the broker or the tool could not do."""


class Record(NamedTuple):
    """A record as it was read; the timestamp is in milliseconds."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class NewRecord(TypedDict, total=False):
    """A record to write: text is written as UTF-8, and what is left out is null or Kafka's choice.

    Without a partition, the key chooses it, as Kafka's producer does.
    """

    partition: int | None
    timestamp: int | None
    key: str | bytes | None
    value: str | bytes | None
    headers: Iterable[tuple[str, str | bytes | None]]


@functools.cache
def available() -> str | None:
    """Makes the jars ready; returns None, or a sentence that says why Kafka cannot run here."""
    try:
        _classes()
    except KafkaError as error:
        return str(error)
    return None


class Broker:
    """A broker whose topics are in a folder of its own and which can be killed and started again.

    `bootstrap` is a listener without security. With `sasl`, `tls` or both there is a second one,
    `secure_bootstrap`; its user is `user` with `password` (SCRAM-SHA-256), and its certificate,
    for 127.0.0.1 and localhost, is signed by the authority in the file `ca_pem`.

    A `folder` that is given is kept, with its topics; one that is not is temporary. `config` is
    added to the broker's properties, and `memory` is the greatest size of its heap.
    """

    user = "lockstep"
    password = "secret"

    def __init__(
        self,
        *,
        sasl: bool = False,
        tls: bool = False,
        folder: Path | None = None,
        config: Mapping[str, object] | None = None,
        memory: str = "256m",
    ) -> None:
        self._temporary = folder is None
        self._process: subprocess.Popen[bytes] | None = None
        self._tool: _Tool | None = None
        self._protocol = ("SASL_" if sasl else "") + ("SSL" if tls else "PLAINTEXT")
        self._secure = sasl or tls
        self._sasl = sasl
        self._memory = memory
        port, controller, secure = _free_ports(3)
        self.bootstrap = f"127.0.0.1:{port}"
        self.secure_bootstrap = f"127.0.0.1:{secure}" if self._secure else None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="lockstep-kafka-"))
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log = self.folder / "broker.log"
        self.ca_pem = self.folder / "ca.pem" if tls else None
        self._properties = self.folder / "server.properties"
        try:
            if tls:
                _make_certificates(self.folder)
            properties = self._default_properties(controller) | dict(config or {})
            lines = (f"{name}={value}\n" for name, value in properties.items())
            self._properties.write_text("".join(lines), encoding="utf-8")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Broker:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, timeout: float = 60) -> None:
        """Starts the broker, on its topics of before if it ran before; returns when it serves."""
        if self.running:
            raise KafkaError("Kafka runs already.")
        deadline = time.monotonic() + timeout
        if self._tool is None:
            self._tool = _Tool(self.bootstrap, self.folder / "tool.log")
        if not (self.folder / "data/meta.properties").exists():
            self._format()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(_java(), f"-Xmx{self._memory}", *_LEAN),
                    *("-cp", f"{_jars()}/*", "kafka.Kafka", str(self._properties)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A signal of the terminal is for the tests, which then stop the broker.
                start_new_session=True,
            )
        try:
            self._tool.call("guard", pid=self._process.pid)
            self._await(deadline, timeout)
        except BaseException:
            self.kill()
            raise

    def stop(self, timeout: float = 20) -> None:
        """Shuts the broker down in good order; its topics stay."""
        if self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout)
        self.kill()

    def kill(self) -> None:
        """Kills the broker at once (SIGKILL); its topics stay."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """Ends both processes, and deletes the folder if it is temporary."""
        self.kill()
        if self._tool is not None:
            self._tool.close()
            self._tool = None
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def running(self) -> bool:
        """Whether the broker's process is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """The broker's process, for measurements."""
        return self._process.pid if self._process is not None else None

    def create_topic(self, name: str, partitions: int = 1, **config: object) -> None:
        """Creates a topic; `cleanup_policy="compact"` sets `cleanup.policy`, and so on."""
        settings = {key.replace("_", "."): str(value) for key, value in config.items()}
        self._call("create_topic", topic=name, partitions=partitions, config=settings)

    def add_partitions(self, topic: str, total: int) -> None:
        """Gives a topic more partitions, `total` then."""
        self._call("add_partitions", topic=topic, total=total)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic; returns when the broker no longer lists it."""
        self._call("delete_topic", topic=name)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Deletes a partition's records with offsets less than `before`."""
        self._call("delete_records", topic=topic, partition=partition, before=before)

    def produce(
        self,
        topic: str,
        records: Iterable[NewRecord | str | bytes | None],
        *,
        transaction: str | None = None,
        commit: bool | None = True,
        compression: str = "none",
    ) -> list[tuple[int, int]]:
        """Writes records, each as a dictionary or as its value; returns partitions and offsets.

        With `transaction`, a transactional id, they are written in one transaction, which is then
        committed, aborted (`commit=False`) or left open (`commit=None`) for more records or for
        `end_transaction`.
        """
        answer = self._call(
            "produce",
            topic=topic,
            records=[_to_json(record) for record in records],
            transaction=transaction,
            commit=commit,
            compression=compression,
        )
        return [(partition, offset) for partition, offset in answer]

    def end_transaction(self, transaction: str, commit: bool = True) -> None:
        """Commits or aborts a transaction that `produce` left open."""
        self._call("end_transaction", transaction=transaction, commit=commit)

    def consume(self, topic: str, isolation: str = "read_committed") -> list[Record]:
        """Reads all partitions from their first records to their ends as of now.

        A partition's records are in the order of their offsets, and the partitions one after the
        other. With "read_committed", a partition ends at the first transaction that is open;
        "read_uncommitted" reads those and the aborted ones, too.
        """
        answer = self._call("consume", topic=topic, isolation=isolation)
        records = [
            Record(partition, offset, timestamp, _decode(key), _decode(value), _pairs(headers))
            for partition, offset, timestamp, key, value, headers in answer
        ]
        return sorted(records, key=lambda record: record[:2])

    def start_offsets(self, topic: str) -> dict[int, int]:
        """The offset of each partition's first record, or of its next one if it has none."""
        return self._offsets("start_offsets", topic, "read_uncommitted")

    def end_offsets(self, topic: str, isolation: str = "read_uncommitted") -> dict[int, int]:
        """The offset after each partition's last record."""
        return self._offsets("end_offsets", topic, isolation)

    def _offsets(self, command: str, topic: str, isolation: str) -> dict[int, int]:
        return {int(p): at for p, at in self._call(command, topic=topic, isolation=isolation)}

    def _call(self, command: str, **arguments: object) -> Any:
        if self._tool is None or not self.running:
            raise KafkaError("Kafka does not run.")
        return self._tool.call(command, **arguments)

    def _format(self) -> None:
        arguments = ["format", "-t", _CLUSTER, "-c", str(self._properties)]
        if self._sasl:
            credentials = f"name={self.user},password={self.password}"
            arguments += ["--add-scram", f"SCRAM-SHA-256=[{credentials}]"]
        assert self._tool is not None
        self._tool.call("format", arguments=arguments)

    def _await(self, deadline: float, timeout: float) -> None:
        assert self._process is not None and self._tool is not None
        host, port = self.bootstrap.split(":")
        listens = False
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                end = self._process.returncode
                raise KafkaError(f"Kafka ended as it started (exit status {end}).\n{self._tail()}")
            if not listens:
                try:
                    socket.create_connection((host, int(port)), timeout=1).close()
                    listens = True
                except OSError:
                    time.sleep(0.05)
            elif self._tool.call("ready", milliseconds=500):
                return
        raise KafkaError(f"Kafka did not start in {timeout:.0f} seconds.\n{self._tail()}")

    def _tail(self) -> str:
        return f"The end of its log:\n{_last_lines(self.log)}"

    def _default_properties(self, controller: int) -> dict[str, object]:
        listeners = f"PLAIN://{self.bootstrap}"
        protocols = "CONTROLLER:PLAINTEXT,PLAIN:PLAINTEXT"
        if self._secure:
            listeners += f",SECURE://{self.secure_bootstrap}"
            protocols += f",SECURE:{self._protocol}"
        properties: dict[str, object] = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAIN",
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": protocols,
            "log.dirs": self.folder / "data",
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": 0,
            "offsets.topic.num.partitions": 4,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.num.partitions": 2,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.num.partitions": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            # A killed broker is taken for alive for so long, and cannot start again before.
            "broker.session.timeout.ms": 1500,
            "broker.heartbeat.interval.ms": 250,
            # Less of everything than a server would have.
            "num.network.threads": 2,
            "num.io.threads": 2,
            "background.threads": 2,
            "num.recovery.threads.per.data.dir": 1,
            "log.cleaner.dedupe.buffer.size": 2 * 1024 * 1024,
            "log.index.size.max.bytes": 1024 * 1024,
            "log.segment.delete.delay.ms": 100,
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
        }
        if self._sasl:
            login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            properties |= {
                "sasl.enabled.mechanisms": "SCRAM-SHA-256",
                "listener.name.secure.scram-sha-256.sasl.jaas.config": login,
            }
        if self.ca_pem is not None:
            properties |= {
                "listener.name.secure.ssl.keystore.type": "PEM",
                "listener.name.secure.ssl.keystore.location": self.folder / "server.pem",
            }
        return properties


class _Tool:
    """The Java process that runs the commands."""

    def __init__(self, bootstrap: str, log: Path) -> None:
        self._log = log
        self._lock = threading.Lock()
        classes = f"{_classes()}{os.pathsep}{_jars()}/*"
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [_java(), "-Xmx192m", *_LEAN, "-cp", classes, "KafkaTool", bootstrap],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                encoding="utf-8",
                start_new_session=True,
            )

    def call(self, command: str, **arguments: object) -> Any:
        """Runs a command; returns its answer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with self._lock:
            try:
                self._process.stdin.write(json.dumps({"command": command, **arguments}) + "\n")
                self._process.stdin.flush()
                line = self._process.stdout.readline()
            except BrokenPipeError:
                line = ""
        if not line.startswith("{"):
            # Java's complaints about its options are on its standard output.
            said = f"{line}{_last_lines(self._log)}"
            raise KafkaError(f"The tool ended. The end of its log:\n{said}")
        answer = json.loads(line)
        if "error" in answer:
            raise KafkaError(answer["error"])
        return answer["answer"]

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def _to_json(record: NewRecord | str | bytes | None) -> dict[str, object]:
    if record is None or isinstance(record, (str, bytes)):
        record = {"value": record}
    headers = [(name, _encode(value)) for name, value in record.get("headers", ())]
    return {
        "partition": record.get("partition"),
        "timestamp": record.get("timestamp"),
        "key": _encode(record.get("key")),
        "value": _encode(record.get("value")),
        "headers": headers,
    }


def _encode(value: str | bytes | None) -> str | None:
    if value is None:
        return None
    data = value.encode() if isinstance(value, str) else value
    return base64.b64encode(data).decode("ascii")


def _decode(value: str | None) -> bytes | None:
    return None if value is None else base64.b64decode(value)


def _pairs(headers: list[list[Any]]) -> list[tuple[str, bytes | None]]:
    return [(name, _decode(value)) for name, value in headers]


def _free_ports(count: int) -> list[int]:
    """Ports outside the system's range for clients, which none takes while a broker is down."""
    ports: list[int] = []
    for _ in itertools.repeat(None, 1000):
        port = random.SystemRandom().randrange(20000, 32000)
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in ports:
            ports.append(port)
        if len(ports) == count:
            return ports
    raise KafkaError("No port is free.")


def _last_lines(file: Path, count: int = 30) -> str:
    with contextlib.suppress(OSError):
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-count:])
    return ""


def _run(command: list[str], doing: str, timeout: float = 300, cwd: Path | None = None) -> str:
    try:
        ended = subprocess.run(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KafkaError(f"{doing} failed: {error}") from error
    if ended.returncode:
        raise KafkaError(f"{doing} failed:\n{ended.stdout[-2000:].strip()}")
    return ended.stdout


@functools.cache
def _java() -> str:
    """The Java of version 17 or newer that JAVA_HOME or PATH has."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else None) or shutil.which("java")
    if found is None:
        raise KafkaError("There is no java, and Kafka needs version 17.")
    version = _run([found, "-version"], "java -version", timeout=60)
    match = re.search(r'version "(\d+)', version)
    if match is None or int(match[1]) < 17:
        raise KafkaError(f"Kafka needs Java 17, and {found} is {version.splitlines()[0]}.")
    return found


@functools.cache
def _jars() -> Path:
    """The folder of Kafka's jars, which Maven fills if it is not there."""
    if _JARS.is_dir():
        return _JARS
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaError(f"There is no mvn to download Kafka's jars to {_JARS}.")
    with _made_at_once(_JARS) as folder:
        project = folder / "pom.xml"
        project.write_text(_PROJECT, encoding="utf-8")
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
        command = [maven, "-B", "-q", "-f", str(project), *goal, "-DincludeScope=runtime"]
        _run(command, "The download of Kafka's jars", timeout=600, cwd=folder)
        project.unlink()
    return _JARS


@functools.cache
def _classes() -> Path:
    """The folder of the compiled tool, named after its source."""
    digest = hashlib.sha256(_TOOL.encode()).hexdigest()[:12]
    classes = _jars() / f"tool-{digest}"
    if not classes.is_dir():
        with _made_at_once(classes) as folder:
            source = folder / "KafkaTool.java"
            source.write_text(_TOOL, encoding="utf-8")
            compiler = [_java(), *_LEAN, "-m", "jdk.compiler/com.sun.tools.javac.Main"]
            options = ["--release", "17", "-proc:none", "-encoding", "UTF-8"]
            # Java's launcher expands "*", and the compiler does not.
            jars = os.pathsep.join(str(jar) for jar in sorted(_jars().glob("*.jar")))
            paths = ["-cp", jars, "-d", str(folder)]
            _run([*compiler, *options, *paths, str(source)], "The compilation of the tool")
    return classes


@contextlib.contextmanager
def _made_at_once(folder: Path) -> Iterator[Path]:
    """A new folder that gets its name when it is complete, also if two processes make it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        yield made
        try:
            made.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _make_certificates(folder: Path) -> None:
    """Makes an authority, ca.pem, and the server's key and certificate, server.pem."""
    openssl = shutil.which("openssl")
    if openssl is None:
        raise KafkaError("There is no openssl to make certificates.")
    new_key = [*("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"), "-nodes"]
    constraint = ["-addext", "basicConstraints=critical,CA:TRUE"]
    usage = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
    authority = [*("-x509", "-days", "30", "-subj", "/CN=lockstep tests"), *constraint, *usage]
    files = ["-keyout", "ca.key", "-out", "ca.pem"]
    _run([openssl, "req", *new_key, *authority, *files], "openssl req", cwd=folder)
    request = ["-subj", "/CN=localhost", "-keyout", "server.key", "-out", "server.csr"]
    _run([openssl, "req", *new_key, *request], "openssl req", cwd=folder)
    (folder / "server.ext").write_text(
        "basicConstraints=CA:FALSE\n"
        "keyUsage=critical,digitalSignature\n"
        "extendedKeyUsage=serverAuth\n"
        "subjectAltName=IP:127.0.0.1,DNS:localhost\n",
        encoding="utf-8",
    )
    signer = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30"]
    files = ["-in", "server.csr", "-extfile", "server.ext", "-out", "server.crt"]
    _run([openssl, "x509", "-req", *signer, *files], "openssl x509", cwd=folder)
    parts = [(folder / name).read_text(encoding="ascii") for name in ("server.key", "server.crt")]
    (folder / "server.pem").write_text("".join(parts), encoding="ascii")


_PROJECT = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>lockstep</groupId>
  <artifactId>kafka-for-tests</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{KAFKA}</version>
    </dependency>
    <!-- Without one, the broker has no log. -->
    <dependency>
      <groupId>org.slf4j</groupId>
      <artifactId>slf4j-simple</artifactId>
      <version>{_SLF4J}</version>
    </dependency>
  </dependencies>
</project>
"""

# Reads a JSON object a line, and answers {"answer": ...} or {"error": "..."}. Bytes are base64.
_TOOL = r"""
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.*;

public final class KafkaTool {
    static final ObjectMapper JSON = new ObjectMapper();
    static final long PATIENCE = 30_000;
    static final Map<String, KafkaProducer<byte[], byte[]>> OPEN = new HashMap<>();
    static String bootstrap;
    static Admin connected;
    static ProcessHandle guarded;

    public static void main(String[] arguments) throws IOException {
        bootstrap = arguments[0];
        PrintStream answers = new PrintStream(
            new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader commands = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = commands.readLine()) != null) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                JsonNode command = JSON.readTree(line);
                answer.set("answer", run(command.get("command").asText(), command));
            } catch (Throwable error) {
                Throwable cause = error;
                while (cause instanceof ExecutionException && cause.getCause() != null) {
                    cause = cause.getCause();
                }
                cause.printStackTrace();
                answer.put("error", cause.getClass().getSimpleName() + ": " + cause.getMessage());
            }
            answers.println(JSON.writeValueAsString(answer));
        }
        if (guarded != null) {
            guarded.destroyForcibly();
        }
        Runtime.getRuntime().halt(0);
    }

    static JsonNode run(String name, JsonNode command) throws Exception {
        switch (name) {
            case "format": return format(command);
            case "guard":
                guarded = ProcessHandle.of(command.get("pid").asLong()).orElse(null);
                return null;
            case "ready": return ready(command.get("milliseconds").asInt());
            case "create_topic": return createTopic(command);
            case "add_partitions": return addPartitions(command);
            case "delete_topic": return deleteTopic(topic(command));
            case "delete_records": return deleteRecords(command);
            case "produce": return produce(command);
            case "end_transaction": return endTransaction(command);
            case "consume": return consume(command);
            case "start_offsets": return offsets(command, OffsetSpec.earliest());
            case "end_offsets": return offsets(command, OffsetSpec.latest());
            default: throw new IllegalArgumentException("no command " + name);
        }
    }

    static JsonNode format(JsonNode command) throws Exception {
        List<String> arguments = new ArrayList<>();
        command.get("arguments").forEach(argument -> arguments.add(argument.asText()));
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        int status = kafka.tools.StorageTool.execute(
            arguments.toArray(new String[0]), new PrintStream(said));
        if (status != 0) {
            throw new IOException("the folder was not formatted: " + said);
        }
        return null;
    }

    static JsonNode ready(int milliseconds) throws Exception {
        try {
            var options = new DescribeClusterOptions().timeoutMs(milliseconds);
            boolean ready = !admin().describeCluster(options).nodes().get().isEmpty();
            if (!ready) {
                Thread.sleep(20);
            }
            return JSON.valueToTree(ready);
        } catch (ExecutionException error) {
            return JSON.valueToTree(false);
        }
    }

    static JsonNode createTopic(JsonNode command) throws Exception {
        Map<String, String> config = new HashMap<>();
        command.get("config").fields().forEachRemaining(
            entry -> config.put(entry.getKey(), entry.getValue().asText()));
        int partitions = command.get("partitions").asInt();
        NewTopic topic = new NewTopic(topic(command), partitions, (short) 1).configs(config);
        admin().createTopics(List.of(topic)).all().get();
        awaitLeaders(topic(command), partitions);
        return null;
    }

    static JsonNode addPartitions(JsonNode command) throws Exception {
        int total = command.get("total").asInt();
        admin().createPartitions(Map.of(topic(command), NewPartitions.increaseTo(total)))
            .all().get();
        awaitLeaders(topic(command), total);
        return null;
    }

    static void awaitLeaders(String topic, int partitions) throws Exception {
        long deadline = System.currentTimeMillis() + PATIENCE;
        while (true) {
            try {
                var infos = describe(topic).partitions();
                if (infos.size() >= partitions
                    && infos.stream().allMatch(i -> i.leader() != null && !i.leader().isEmpty())) {
                    return;
                }
            } catch (ExecutionException error) {
                if (!(error.getCause()
                    instanceof org.apache.kafka.common.errors.UnknownTopicOrPartitionException)) {
                    throw error;
                }
            }
            pause(deadline, "the leaders of " + topic);
        }
    }

    static JsonNode deleteTopic(String topic) throws Exception {
        admin().deleteTopics(List.of(topic)).all().get();
        long deadline = System.currentTimeMillis() + PATIENCE;
        while (admin().listTopics().names().get().contains(topic)) {
            pause(deadline, "the deletion of " + topic);
        }
        return null;
    }

    static JsonNode deleteRecords(JsonNode command) throws Exception {
        var partition = new TopicPartition(topic(command), command.get("partition").asInt());
        var before = RecordsToDelete.beforeOffset(command.get("before").asLong());
        admin().deleteRecords(Map.of(partition, before)).all().get();
        return null;
    }

    // A producer for each call: one that is kept would remember topics since deleted.
    static JsonNode produce(JsonNode command) throws Exception {
        String transaction = command.path("transaction").textValue();
        String compression = command.get("compression").asText();
        if (transaction == null) {
            try (var producer = producer(null, compression)) {
                return send(producer, command);
            }
        }
        KafkaProducer<byte[], byte[]> producer = OPEN.get(transaction);
        if (producer == null) {
            producer = producer(transaction, compression);
            try {
                producer.initTransactions();
                producer.beginTransaction();
            } catch (RuntimeException error) {
                producer.close(Duration.ZERO);
                throw error;
            }
            OPEN.put(transaction, producer);
        }
        JsonNode answer;
        try {
            answer = send(producer, command);
        } catch (Exception error) {
            OPEN.remove(transaction).close(Duration.ZERO);
            throw error;
        }
        if (!command.get("commit").isNull()) {
            end(transaction, command.get("commit").asBoolean());
        }
        return answer;
    }

    static JsonNode send(KafkaProducer<byte[], byte[]> producer, JsonNode command)
        throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode record : command.get("records")) {
            JsonNode partition = record.get("partition");
            JsonNode timestamp = record.get("timestamp");
            var sending = new ProducerRecord<byte[], byte[]>(
                topic(command),
                partition.isNull() ? null : Integer.valueOf(partition.asInt()),
                timestamp.isNull() ? null : Long.valueOf(timestamp.asLong()),
                record.get("key").binaryValue(),
                record.get("value").binaryValue());
            for (JsonNode header : record.get("headers")) {
                sending.headers().add(header.get(0).asText(), header.get(1).binaryValue());
            }
            sent.add(producer.send(sending));
        }
        producer.flush();
        ArrayNode answer = JSON.createArrayNode();
        for (Future<RecordMetadata> one : sent) {
            RecordMetadata written = one.get();
            answer.addArray().add(written.partition()).add(written.offset());
        }
        return answer;
    }

    static JsonNode endTransaction(JsonNode command) throws Exception {
        String transaction = command.get("transaction").asText();
        if (!OPEN.containsKey(transaction)) {
            throw new IllegalStateException("no open transaction " + transaction);
        }
        end(transaction, command.get("commit").asBoolean());
        return null;
    }

    // Returns when readers see the end, which the coordinator writes after its answer.
    static void end(String transaction, boolean commit) throws Exception {
        try (var producer = OPEN.remove(transaction)) {
            if (commit) {
                producer.commitTransaction();
            } else {
                producer.abortTransaction();
            }
        }
        long deadline = System.currentTimeMillis() + PATIENCE;
        while (true) {
            var state = admin().describeTransactions(List.of(transaction))
                .description(transaction).get().state();
            if (state == TransactionState.COMPLETE_COMMIT
                || state == TransactionState.COMPLETE_ABORT
                || state == TransactionState.EMPTY) {
                return;
            }
            pause(deadline, "the end of the transaction " + transaction);
        }
    }

    static JsonNode consume(JsonNode command) throws Exception {
        Properties settings = clients();
        settings.put("isolation.level", command.get("isolation").asText());
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("max.poll.records", "10000");
        settings.put("default.api.timeout.ms", "" + PATIENCE);
        List<TopicPartition> partitions = partitions(topic(command));
        ArrayNode answer = JSON.createArrayNode();
        long deadline = System.currentTimeMillis() + PATIENCE;
        try (var consumer = new KafkaConsumer<>(
            settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (partitions.stream().anyMatch(p -> consumer.position(p) < ends.get(p))) {
                var records = consumer.poll(Duration.ofMillis(100));
                for (var record : records) {
                    var partition = new TopicPartition(record.topic(), record.partition());
                    if (record.offset() < ends.get(partition)) {
                        add(answer, record);
                    }
                }
                if (!records.isEmpty()) {
                    deadline = System.currentTimeMillis() + PATIENCE;
                } else if (System.currentTimeMillis() > deadline) {
                    throw new TimeoutException("the end was not reached");
                }
            }
            consumer.close(CloseOptions.timeout(Duration.ZERO));
        }
        return answer;
    }

    static void add(ArrayNode answer, ConsumerRecord<byte[], byte[]> record) {
        ArrayNode one = answer.addArray();
        one.add(record.partition()).add(record.offset()).add(record.timestamp());
        one.add(record.key()).add(record.value());
        ArrayNode headers = one.addArray();
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(header.value());
        }
    }

    static JsonNode offsets(JsonNode command, OffsetSpec spec) throws Exception {
        var isolation = IsolationLevel.valueOf(
            command.get("isolation").asText().toUpperCase(Locale.ROOT));
        Map<TopicPartition, OffsetSpec> wanted = new HashMap<>();
        partitions(topic(command)).forEach(partition -> wanted.put(partition, spec));
        ArrayNode answer = JSON.createArrayNode();
        admin().listOffsets(wanted, new ListOffsetsOptions(isolation)).all().get().forEach(
            (partition, found) ->
                answer.addArray().add(partition.partition()).add(found.offset()));
        return answer;
    }

    static List<TopicPartition> partitions(String topic) throws Exception {
        return describe(topic).partitions().stream()
            .map(info -> new TopicPartition(topic, info.partition())).toList();
    }

    static TopicDescription describe(String topic) throws Exception {
        return admin().describeTopics(List.of(topic)).allTopicNames().get().get(topic);
    }

    static String topic(JsonNode command) {
        return command.get("topic").asText();
    }

    static Admin admin() {
        if (connected == null) {
            Properties settings = clients();
            settings.put("default.api.timeout.ms", "" + PATIENCE);
            settings.put("request.timeout.ms", "10000");
            connected = Admin.create(settings);
        }
        return connected;
    }

    static KafkaProducer<byte[], byte[]> producer(String transaction, String compression) {
        Properties settings = clients();
        settings.put("acks", "all");
        settings.put("linger.ms", "5");
        settings.put("compression.type", compression);
        settings.put("max.block.ms", "" + PATIENCE);
        settings.put("request.timeout.ms", "10000");
        settings.put("delivery.timeout.ms", "" + PATIENCE);
        if (transaction != null) {
            settings.put("transactional.id", transaction);
        }
        return new KafkaProducer<>(
            settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static Properties clients() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("reconnect.backoff.ms", "20");
        settings.put("reconnect.backoff.max.ms", "200");
        settings.put("retry.backoff.ms", "20");
        settings.put("retry.backoff.max.ms", "200");
        settings.put("enable.metrics.push", "false");
        return settings;
    }

    static void pause(long deadline, String what) throws Exception {
        if (System.currentTimeMillis() > deadline) {
            throw new TimeoutException("waited too long for " + what);
        }
        Thread.sleep(10);
    }
}
"""
