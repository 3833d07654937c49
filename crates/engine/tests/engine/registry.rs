//! Messages in Avro and Protobuf whose schemas are in a registry: into rows, out of rows, and what is wrong with them.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use krafka::{Kafka, Record};
use lockstep_engine::{Database, code};
use serde_json::json;

use crate::{
    kafka::{TestBroker, number, rows, text, wait, wait_for_rows},
    test_directory::TestDirectory,
    test_registry::TestRegistry,
};

const COLUMNS: &str =
    "id INT, b BOOL, s SMALLINT, l BIGINT, f FLOAT, d DOUBLE, t STRING, day DATE, ts TIMESTAMP";

/// Frames a value.
fn framed(id: usize, value: &[u8]) -> Vec<u8> {
    [&[0][..], &u32::try_from(id).unwrap().to_be_bytes(), value].concat()
}

/// Writes values to the first partition of the topic `in`.
fn write(broker: &TestBroker, values: impl IntoIterator<Item = Vec<u8>>) {
    broker.runtime.block_on(async {
        let kafka = Kafka::builder(broker.broker.bootstrap_servers()).connect().await.unwrap();
        let producer = kafka.producer().build().await.unwrap();
        for value in values {
            assert!(producer.send(Record::new("in", value).partition(0)).await.is_ok());
        }
        producer.close().await.unwrap();
    });
}

/// Returns options with a format and a registry.
fn with_registry(format: &str, registry: &TestRegistry, more: &str) -> String {
    format!(", format='{format}', schema_registry='{}'{more}", registry.url())
}

#[test]
fn rows_come_back_as_they_were_in_each_format() {
    for format in ["avro", "protobuf"] {
        let (broker, registry) = (TestBroker::new(), TestRegistry::start());
        let directory = TestDirectory::new("registry");
        let session = directory.open();
        session.execute(&format!("CREATE TABLE given ({COLUMNS})")).unwrap();
        session.execute(&format!("CREATE TABLE taken ({COLUMNS})")).unwrap();
        let options = broker.options("out", &with_registry(format, &registry, ", key='id'"));
        session.execute(&format!("CREATE SINK o FROM TABLE given INTO KAFKA {options}")).unwrap();
        let options = broker.options("out", &with_registry(format, &registry, ""));
        session.execute(&format!("CREATE SOURCE i INTO TABLE taken FROM KAFKA {options}")).unwrap();
        let schema = registry.latest("out-value").unwrap();
        assert!(schema.contains("given"), "{schema}");
        drop(session);
        let mut calls = 0;
        for round in 0..3 {
            let session = directory.open();
            session
                .execute(&format!(
                    "INSERT INTO given VALUES ({round}, true, -7, 9223372036854775807, 0.1, -2.5, 'ä \"', \
                     '1969-12-31', -1234), ({round} + 10, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), \
                     ({round} + 20, false, 0, 0, 0.0, 0.0, '', '1970-01-01', 0)"
                ))
                .unwrap();
            wait_for_rows(&session, "taken", 3 * (round + 1));
            calls = registry.calls();
        }
        assert!(calls < 20, "schemas are remembered: {calls} calls");
        let session = directory.open();
        let all = |table: &str| rows(&session, &format!("SELECT * FROM {table} ORDER BY id"));
        assert_eq!(all("taken"), all("given"), "{format}");
        assert_eq!(number(&session, "SELECT messages_written FROM lockstep.sinks"), 9);
    }
}

#[test]
fn messages_of_avro_that_are_no_rows_are_stored_with_the_reason() {
    let (broker, registry) = (TestBroker::new(), TestRegistry::start());
    let session = Database::in_memory().session();
    session.execute("CREATE TABLE t (id INT NOT NULL, k STRING DEFAULT 'none', x BIGINT)").unwrap();
    let record =
        |fields: &str| format!(r#"{{"type": "record", "name": "r", "fields": [{fields}]}}"#);
    let avro = |fields: &str| registry.register("in-value", "AVRO", &record(fields), &json!([]));
    let id = r#"{"name": "id", "type": ["null", "long"]}"#;
    let (first, k) = (avro(id), avro(&format!(r#"{id}, {{"name": "k", "type": "string"}}"#)));
    let more = avro(&format!(r#"{id}, {{"name": "more", "type": "int"}}"#));
    let wrong = avro(r#"{"name": "id", "type": {"type": "array", "items": "int"}}"#);
    let proto = registry.register("x", "PROTOBUF", "syntax = \"proto3\"; message M {}", &json!([]));
    for (table, rule) in [("t", "error"), ("u", "ignore")] {
        let new =
            format!("CREATE TABLE IF NOT EXISTS {table} (id INT NOT NULL, k STRING, x BIGINT)");
        session.execute(&new).unwrap();
        let more = format!(", on_error='skip into bad_{table}', unknown_columns='{rule}'");
        let options = broker.options("in", &with_registry("avro", &registry, &more));
        let create = format!("CREATE SOURCE of_{table} INTO TABLE {table} FROM KAFKA {options}");
        session.execute(&create).unwrap();
    }
    // In Avro, 2 and 0 begin the second and the first branch of a union.
    let values = [
        framed(first, &[2, 2]),
        framed(k, &[2, 4, 2, b'a']),
        framed(more, &[2, 6, 0]),
        framed(first, &[0]),
        framed(first, &[2, 0x80, 0x80, 0x80, 0x80, 0x80, 1]),
        framed(first, &[2]),
        framed(wrong, &[0]),
        framed(proto, &[0]),
        framed(999, &[0]),
        b"{\"id\": 1}".to_vec(),
        framed(k, &[2, 8, 2, b'b']),
    ];
    write(&broker, values);
    wait_for_rows(&session, "t", 3);
    wait_for_rows(&session, "u", 4);
    wait_for_rows(&session, "bad_t", 8);
    wait_for_rows(&session, "bad_u", 7);
    let found = rows(&session, "SELECT concat(id, k) AS row FROM t ORDER BY id");
    assert!(found.contains("1none") && found.contains("2a") && found.contains("4b"), "{found}");
    let reasons = rows(&session, "SELECT reason FROM bad_t ORDER BY topic_offset");
    let mut rest = reasons.as_str();
    for expected in [
        "column `more` does not exist in the table",
        "column `id`",
        "column `id` is of type INT: the value cannot be converted to INT exactly",
        "the value does not fit its schema: ",
        "column `id` is of type INT: cannot convert",
        "is in PROTOBUF, not in AVRO",
        "schema 999 does not exist in the schema registry",
        "the value does not begin with the id of a schema",
    ] {
        let at = rest.find(expected).unwrap_or_else(|| panic!("{expected}: {reasons}"));
        rest = &rest[at + expected.len()..];
    }
}

#[test]
fn messages_of_protobuf_become_rows() {
    let (broker, registry) = (TestBroker::new(), TestRegistry::start());
    let session = Database::in_memory().session();
    session
        .execute(
            "CREATE TABLE t (id INT, color STRING, at TIMESTAMP, name STRING DEFAULT 'no one')",
        )
        .unwrap();
    let color = "syntax = \"proto3\"; enum Color { RED = 0; BLUE = 1; }";
    registry.register("colors", "PROTOBUF", color, &json!([]));
    let schema = "syntax = \"proto3\"; import \"color.proto\"; import \"google/protobuf/timestamp.proto\"; message \
                  A { int32 id = 1; Color color = 2; google.protobuf.Timestamp at = 3; optional string name = 4; }";
    let references = json!([{ "name": "color.proto", "subject": "colors", "version": 1 }]);
    let id = registry.register("in-value", "PROTOBUF", schema, &references);
    let options =
        broker.options("in", &with_registry("protobuf", &registry, ", on_error='skip into bad'"));
    session.execute(&format!("CREATE SOURCE s INTO TABLE t FROM KAFKA {options}")).unwrap();
    let values = [
        framed(id, &[0, 8, 1, 16, 1, 26, 2, 8, 3, 34, 1, b'n']),
        framed(id, &[0, 8, 2]),
        framed(id, &[2, 6]),
        framed(id, &[0, 8]),
    ];
    write(&broker, values);
    wait_for_rows(&session, "t", 2);
    wait_for_rows(&session, "bad", 2);
    let found = "SELECT count(*) FROM t WHERE (id = 1 AND color = 'BLUE' AND at = TIMESTAMP(3000) AND name = 'n') \
                 OR (id = 2 AND color = 'RED' AND at IS NULL AND name = 'no one')";
    assert_eq!(number(&session, found), 2);
}

#[test]
fn a_source_waits_for_its_registry() {
    let (broker, registry) = (TestBroker::new(), TestRegistry::start());
    let directory = TestDirectory::new("registry-waits");
    let session = directory.open();
    session.execute("CREATE TABLE t (id INT)").unwrap();
    let schema = r#"{"type": "record", "name": "r", "fields": [{"name": "id", "type": "int"}]}"#;
    let id = registry.register("in-value", "AVRO", schema, &json!([]));
    // "me:hush" in Base64.
    registry.require_login("bWU6aHVzaA==");
    let create = |more: &str| {
        let options = broker.options("in", &with_registry("avro", &registry, more));
        session.execute(&format!("CREATE SOURCE s INTO TABLE t FROM KAFKA {options}"))
    };
    let error = create("").unwrap_err();
    assert_eq!(
        (error.code, error.message.as_str()),
        (code::INVALID_AUTHORIZATION, "the schema registry refuses the login")
    );
    let login = ", schema_registry_username='me', schema_registry_password='hush'";
    create(login).unwrap();
    for sql in ["SHOW CREATE SOURCE s", "SHOW SOURCES"] {
        let shown = rows(&session, sql);
        assert!(
            shown.contains("schema_registry_password='***'") && !shown.contains("hush"),
            "{shown}"
        );
    }
    registry.fail(5);
    write(&broker, [framed(id, &[2]), framed(id, &[4])]);
    let state = "SELECT state FROM lockstep.sources";
    wait("the source waits", || text(&session, state) == "waiting");
    let error = text(&session, "SELECT error FROM lockstep.sources");
    assert!(
        error.contains("could not reach the schema registry") && error.contains("Out of order"),
        "{error}"
    );
    wait_for_rows(&session, "t", 2);
    assert_eq!(text(&session, state), "running");
    drop(session);
    // Opening needs no registry.
    registry.fail(usize::MAX);
    let session = directory.open();
    assert_eq!(number(&session, "SELECT count(*) FROM t"), 2);
}

/// Returns what is wrong: the beginning of a statement, some options, and the code and the message of the error.
fn wrong_options(url: &str) -> Vec<(&'static str, String, &'static str, &'static str)> {
    let no_registry = "option `schema_registry` is required for this format";
    vec![
        (
            "SOURCE s INTO TABLE t FROM",
            "format='avro'".to_owned(),
            code::INVALID_PARAMETER,
            no_registry,
        ),
        (
            "SOURCE s INTO TABLE t FROM",
            format!("schema_registry='{url}'"),
            code::INVALID_PARAMETER,
            "option `schema_registry` requires the format 'avro' or 'protobuf'",
        ),
        (
            "SINK s FROM TABLE t INTO",
            "format='csv'".to_owned(),
            code::INVALID_PARAMETER,
            "option `format` must be one of json, avro, protobuf",
        ),
        (
            "SOURCE s INTO TABLE t FROM",
            format!("format='avro', schema_registry='{url}', schema_registry_username='me'"),
            code::INVALID_PARAMETER,
            "options `schema_registry_username` and `schema_registry_password` require each other",
        ),
        (
            "SOURCE s INTO TABLE t FROM",
            "format='avro', schema_registry='broker:8081'".to_owned(),
            code::INVALID_PARAMETER,
            "`broker:8081` is not an address of a schema registry",
        ),
        (
            "SOURCE s INTO TABLE t FROM",
            "format='avro', schema_registry='http://127.0.0.1:1'".to_owned(),
            code::NOT_CONNECTED,
            "could not reach the schema registry at `http://127.0.0.1:1`",
        ),
        (
            "SOURCE s INTO TABLE t FROM",
            format!("format='avro', schema_registry='{url}', subject='in-value'"),
            code::INVALID_PARAMETER,
            "the schemas of subject `in-value` are in JSON, not in AVRO",
        ),
        (
            "SINK s FROM TABLE t INTO",
            format!("format='avro', schema_registry='{url}'"),
            code::INVALID_PARAMETER,
            "column `a b` has a name that Avro does not allow",
        ),
        (
            "SINK s FROM TABLE u INTO",
            format!(
                "format='protobuf', schema_registry='http://127.0.0.1:1,{url}', subject='out-value'"
            ),
            code::INVALID_PARAMETER,
            "the schema registry refuses the schema of subject `out-value`",
        ),
    ]
}

#[test]
fn what_is_wrong_with_a_registry_is_said() {
    let (broker, registry) = (TestBroker::new(), TestRegistry::start());
    let session = Database::in_memory().session();
    session.execute("CREATE TABLE t (id INT, `a b` INT)").unwrap();
    session.execute("CREATE TABLE u (id INT)").unwrap();
    registry.register("in-value", "JSON", "{}", &json!([]));
    registry.register("out-value", "AVRO", "\"string\"", &json!([]));
    registry.refuse_changes();
    for (sql, options, code, message) in wrong_options(&registry.url()) {
        let topic = if sql.starts_with("SINK") { "out" } else { "in" };
        let options = broker.options(topic, &format!(", {options}"));
        let error = session.execute(&format!("CREATE {sql} KAFKA {options}")).unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (code, message));
    }
    for table in ["sources", "sinks"] {
        assert_eq!(number(&session, &format!("SELECT count(*) FROM lockstep.{table}")), 0);
    }
}
