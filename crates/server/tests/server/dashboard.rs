//! The dashboard for Grafana and the documentation, against the metrics that a server gives.

use std::collections::BTreeSet;

use crate::support::{TestServer, get, post};
use krafka::testing::FakeBroker;
use serde_json::Value;
use tokio::runtime::Runtime;

const DASHBOARD: &str = include_str!("../../../../release/grafana/lockstep.json");

const MANUAL: &str = include_str!("../../../../docs/reference/metrics.md");

const SETUP: &str = "
    CREATE TABLE t (k STRING, v BIGINT, ts TIMESTAMP, INDEX(KEY=k, TS=ts));
    DEPLOY d AS SELECT k, v FROM t;
    CREATE STREAM s INTO TABLE counts AS SELECT k, count(*) OVER w AS n FROM t
        WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW);
    INSERT INTO t VALUES ('a', 1, 1000);
    SET GLOBAL max_memory = '1GB';";

/// Returns the names of metrics in a text: those of histograms without the parts.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c: char| !is_part(c)).filter(|word| word.starts_with("lockstep_"));
    let base = |word: &str| {
        let parts = ["_bucket", "_count", "_sum"];
        let found = parts.iter().find_map(|part| word.strip_suffix(part));
        found.unwrap_or(word).to_owned()
    };
    words.map(base).collect()
}

/// Returns the metrics that a server gives, each of which has a value.
fn served_metrics() -> BTreeSet<String> {
    let server = TestServer::start(&[], SETUP);
    server.database.settle_streams();
    let runtime = Runtime::new().unwrap();
    let broker = runtime.block_on(FakeBroker::start()).unwrap();
    assert!(broker.create_topic("topic", 1));
    let options = format!("OPTIONS(brokers='{}', topic='topic')", broker.bootstrap_servers());
    for (sql, table) in [
        ("CREATE SOURCE metered_in INTO TABLE metered FROM KAFKA", "metered"),
        ("CREATE SINK metered_out FROM TABLE unmetered INTO KAFKA", "unmetered"),
    ] {
        let session = server.database.session();
        session.execute(&format!("CREATE TABLE {table} (a INT)")).unwrap();
        session.execute(&format!("{sql} {options}")).unwrap();
    }
    assert_eq!(server.send(post("/v1/deployments/d", r#"["a",1,1]"#)).status, 200);
    let text = server.send(get("/metrics")).text().to_owned();
    let kinds = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let names: BTreeSet<String> =
        kinds.map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    let values: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(metrics_in(&values.join("\n")), names, "each metric has a value");
    names
}

#[test]
fn the_dashboard_and_the_manual_have_the_metrics_of_the_server() {
    let served = served_metrics();
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let shown: Vec<&str> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
    assert_eq!(metrics_in(&shown.join(" ")), served, "each is shown, and no other");
    let variables = metrics_in(&dashboard["templating"].to_string());
    assert!(!variables.is_empty() && variables.is_subset(&served), "{variables:?}");
    let described = metrics_in(MANUAL);
    assert_eq!(described, served, "each is described, and no other");
}

#[test]
fn the_panels_of_the_dashboard_do_not_overlap() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let mut cells = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let number = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        let (x, y, w, h) = (number("x"), number("y"), number("w"), number("h"));
        assert!(x + w <= 24, "{panel}");
        let own = (y..y + h).flat_map(|row| (x..x + w).map(move |column| (row, column)));
        assert!(own.into_iter().all(|cell| cells.insert(cell)), "{panel}");
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
    }
}
