//! Pre-aggregates of deployments: who has them, that they change no answer, and that they are given back.

use arrow::{
    array::{AsArray, RecordBatch},
    datatypes::Int64Type,
};
use lockstep_engine::{Database, Output, Session};

use crate::test_directory::TestDirectory;

fn run(session: &Session, sql: &str) -> Output {
    session.execute(sql).unwrap_or_else(|error| panic!("{}", error.render(Some(sql))))
}

/// Returns the columns of what a statement returns, as text.
fn text(session: &Session, sql: &str) -> String {
    let output = run(session, sql);
    format!("{:?}", output.batches.iter().map(RecordBatch::columns).collect::<Vec<_>>())
}

const FEATURES: &str = "SELECT k, count(v) OVER w AS n, sum(v) OVER w AS total, \
     min(v) OVER w AS least, distinct_count(n) OVER w AS kinds, first_value(v) OVER w AS oldest \
     FROM s WINDOW w AS (PARTITION BY k ORDER BY ts \
     ROWS_RANGE BETWEEN 90d PRECEDING AND CURRENT ROW)";

/// Makes a session with 20,000 rows of one key in `s`, and 3 of another.
fn filled() -> (Database, Session) {
    let database = Database::in_memory();
    let session = database.session();
    fill(&session, "");
    (database, session)
}

fn fill(session: &Session, options: &str) {
    let columns = "k STRING, v DOUBLE, n INT, ts BIGINT, INDEX(KEY=k, TS=ts)";
    run(session, &format!("CREATE TABLE s ({columns}) {options}"));
    for first in (0..20_000).step_by(1_000) {
        insert(session, "a", (first..first + 1_000).map(|at| at * 1_000));
    }
    insert(session, "b", 0..3);
}

/// Inserts rows of a key at some times.
fn insert(session: &Session, key: &str, times: impl Iterator<Item = i64>) {
    let values = times.map(|time| {
        let value = 0.1 + f64::from(i32::try_from(time % 977).expect("it is small"));
        format!("('{key}', {value:?}, {}, {time})", time % 7)
    });
    let values: Vec<String> = values.collect();
    run(session, &format!("INSERT INTO s VALUES {}", values.join(", ")));
}

/// Answers a request with a deployment.
fn answer(session: &Session, deployment: &str, key: &str, time: i64) -> String {
    text(session, &format!("CALL {deployment}('{key}', 2.5, 1, {time})"))
}

/// Compares the deployments `d` and `plain`.
fn check(session: &Session) {
    for (key, time) in
        [("a", 20_000_000), ("a", 7_777_777), ("a", 500), ("a", 9_999_999_999), ("b", 7), ("c", 1)]
    {
        let (found, expected) =
            (answer(session, "d", key, time), answer(session, "plain", key, time));
        assert_eq!(found, expected, "{key} at {time}");
    }
}

/// Returns a column of the only row of `lockstep.pre_aggregates`.
fn figure(session: &Session, column: &str) -> i64 {
    let output = run(session, &format!("SELECT {column} FROM lockstep.pre_aggregates"));
    assert_eq!(output.row_count(), 1, "there is one pre-aggregate");
    output.batches[0].column(0).as_primitive::<Int64Type>().value(0)
}

fn deploy(session: &Session, options: &str) {
    run(session, &format!("DEPLOY plain OPTIONS(pre_aggregation='off') {FEATURES}"));
    run(session, &format!("DEPLOY d {options} {FEATURES}"));
}

#[test]
fn answers_are_the_same_through_all_changes_of_the_table() {
    let (database, session) = filled();
    deploy(&session, "OPTIONS(pre_aggregation='always')");
    check(&session);
    database.make_pre_aggregates();
    check(&session);
    assert!(figure(&session, "rows_from_nodes") > 20_000, "most rows are in nodes");
    assert_eq!(figure(&session, "keys"), 1, "short keys have none");
    // Late rows, before and after their nodes are made again.
    insert(&session, "a", [5, 7_000_001, 19_999_999, 7_000_001].into_iter());
    check(&session);
    database.make_pre_aggregates();
    check(&session);
    run(&session, "DELETE FROM s WHERE ts >= 3000000 AND ts < 4000000");
    check(&session);
    database.make_pre_aggregates();
    let before = figure(&session, "rows_from_nodes");
    check(&session);
    assert!(
        figure(&session, "rows_from_nodes") > before + 10_000,
        "nodes are made of what is left"
    );
    run(&session, "TRUNCATE TABLE s");
    check(&session);
    insert(&session, "a", (0..1_000).map(|at| at * 10));
    database.make_pre_aggregates();
    check(&session);
}

/// Returns how many pages a call found in the page cache or read.
fn pages(session: &Session, deployment: &str) -> u64 {
    let call = format!("EXPLAIN ANALYZE CALL {deployment}('a', 2.5, 1, 30000000)");
    let output = run(session, &call);
    let lines: Vec<&str> =
        output.batches[0].column(0).as_string::<i32>().iter().flatten().collect();
    let count = |begin: &str| -> u64 {
        let line = lines.iter().find_map(|line| line.trim().strip_prefix(begin));
        let count = line.and_then(|rest| rest.split(' ').next());
        count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{lines:?}"))
    };
    count("pages found in the page cache: ") + count("blocks read from files of tables: ")
}

#[test]
fn nodes_of_a_disk_table_stand_for_its_pages() {
    let directory = TestDirectory::new("nodes");
    let database = Database::open(&directory.0).expect("nobody else has it open");
    let session = database.session();
    fill(&session, "OPTIONS(storage_mode='disk')");
    run(&session, "CHECKPOINT");
    deploy(&session, "OPTIONS(pre_aggregation='always')");
    let all = pages(&session, "plain");
    assert!(all > 20, "{all} pages");
    database.make_pre_aggregates();
    assert_eq!(figure(&session, "keys"), 1, "short keys have none");
    check(&session);
    assert!(figure(&session, "rows_from_nodes") > 20_000, "most rows are in nodes");
    let edges = pages(&session, "d");
    assert!(edges <= 2, "{edges} pages");
    // What is late among rows in files, and not among those in memory; and files that have it.
    for step in ["", "CHECKPOINT"] {
        insert(&session, "a", [5, 7_000_001, 19_999_999, 7_000_001].into_iter());
        insert(&session, "a", (20_000..20_300).map(|at| at * 1_000));
        check(&session);
        if !step.is_empty() {
            run(&session, step);
            database.compact_disk_tables().expect("there is space");
        }
        check(&session);
        database.make_pre_aggregates();
        check(&session);
        let edges = pages(&session, "d");
        assert!(edges <= 3, "{edges} pages");
    }
    run(&session, "DELETE FROM s WHERE ts >= 3000000 AND ts < 4000000");
    check(&session);
    database.make_pre_aggregates();
    check(&session);
    run(&session, "ALTER TABLE s SET OPTIONS(storage_mode='memory')");
    check(&session);
    database.make_pre_aggregates();
    check(&session);
    run(&session, "ALTER TABLE s SET OPTIONS(storage_mode='disk')");
    check(&session);
    database.make_pre_aggregates();
    let before = figure(&session, "rows_from_nodes");
    check(&session);
    assert!(figure(&session, "rows_from_nodes") > before + 10_000, "nodes are made again");
    run(&session, "TRUNCATE TABLE s");
    check(&session);
    insert(&session, "a", (0..1_000).map(|at| at * 10));
    database.make_pre_aggregates();
    check(&session);
}

#[test]
fn keys_of_which_requests_read_many_rows_get_nodes_by_themselves() {
    let (database, session) = filled();
    deploy(&session, "");
    database.make_pre_aggregates();
    assert_eq!(figure(&session, "keys"), 0, "nobody needs any");
    answer(&session, "d", "b", 100);
    database.make_pre_aggregates();
    assert_eq!(figure(&session, "keys"), 0, "a short key needs none");
    answer(&session, "d", "a", 30_000_000);
    database.make_pre_aggregates();
    assert_eq!(figure(&session, "keys"), 1);
    let read = figure(&session, "rows_read");
    check(&session);
    assert!(figure(&session, "rows_read") < read + 2_000, "nodes are taken in their place");
    assert_eq!(figure(&session, "keys_waiting"), 0);
}

/// A group in any order, which the declared index has, and one in order of arrival.
const GROUPS: [&str; 2] = [
    "SELECT k, count(*) AS n, sum(v) AS total, max(v) AS most, distinct_count(n) AS kinds FROM s \
     GROUP BY k",
    "SELECT k, first_value(v) AS oldest, last_value(n) AS newest, sum(v) AS total FROM s GROUP BY k",
];

#[test]
fn groups_take_nodes_in_any_order_and_in_order_of_arrival() {
    for group in GROUPS {
        let (database, session) = filled();
        run(&session, &format!("DEPLOY plain OPTIONS(pre_aggregation='off') {group}"));
        run(&session, &format!("DEPLOY d OPTIONS(pre_aggregation='always') {group}"));
        database.make_pre_aggregates();
        check(&session);
        let (taken, read) = (figure(&session, "rows_from_nodes"), figure(&session, "rows_read"));
        // Four of the requests are of the long key; the last 1,000 rows may have arrived at one time.
        assert!(taken > 4 * 18_000 && read < 4 * 2_000, "{taken} and {read} rows: {group}");
        insert(&session, "a", [5, 7_000_001, 19_999_999, 7_000_001].into_iter());
        check(&session);
        database.make_pre_aggregates();
        check(&session);
        run(&session, "DELETE FROM s WHERE ts >= 3000000 AND ts < 4000000");
        check(&session);
        database.make_pre_aggregates();
        check(&session);
        run(&session, "TRUNCATE TABLE s");
        check(&session);
        insert(&session, "a", (0..1_000).map(|at| at * 10));
        insert(&session, "a", (0..10).map(|at| at * 10));
        database.make_pre_aggregates();
        check(&session);
    }
}

#[test]
fn a_group_gets_nodes_by_itself() {
    let (database, session) = filled();
    run(&session, &format!("DEPLOY plain OPTIONS(pre_aggregation='off') {}", GROUPS[0]));
    run(&session, &format!("DEPLOY d {}", GROUPS[0]));
    answer(&session, "d", "a", 30_000_000);
    database.make_pre_aggregates();
    assert_eq!(figure(&session, "keys"), 1);
    let read = figure(&session, "rows_read");
    check(&session);
    assert!(figure(&session, "rows_read") < read + 2_000, "nodes are taken in their place");
}

#[test]
fn nodes_are_made_by_themselves_when_memory_is_free_again() {
    let (database, session) = filled();
    run(&session, &format!("DEPLOY plain OPTIONS(pre_aggregation='off') {FEATURES}"));
    database.set_max_memory(Some(database.memory_use().used));
    run(&session, &format!("DEPLOY d OPTIONS(pre_aggregation='always') {FEATURES}"));
    // What the thread does, which finds no memory.
    database.make_pre_aggregates();
    assert_eq!(figure(&session, "memory_bytes"), 0);
    assert_eq!(figure(&session, "keys_waiting"), 1, "the keys are still to be looked for");
    assert!(text(&session, "SHOW JOBS").contains("default.d: 1 keys pending, 0 rows aggregated"));
    // No write, no request and no deployment follows.
    database.set_max_memory(None);
    let is_made = || {
        lockstep_host::pause(1);
        figure(&session, "keys_waiting") == 0 && figure(&session, "memory_bytes") > 10_000
    };
    assert!((0..20_000).any(|_| is_made()), "the thread is woken");
    check(&session);
}

#[test]
fn memory_is_given_back_with_the_deployment_and_before_writes_are_refused() {
    let (database, session) = filled();
    // It makes the index include what the other one reads, too.
    run(&session, &format!("DEPLOY plain OPTIONS(pre_aggregation='off') {FEATURES}"));
    let before = database.memory_use().used;
    run(&session, &format!("DEPLOY d OPTIONS(pre_aggregation='always') {FEATURES}"));
    database.make_pre_aggregates();
    let bytes = u64::try_from(figure(&session, "memory_bytes")).expect("it is not negative");
    assert!(bytes > 10_000, "{bytes}");
    assert!(database.memory_use().used >= before + bytes / 2, "the budget has it");
    // A write that does not fit takes the place of the nodes.
    database.set_max_memory(Some(database.memory_use().used));
    insert(&session, "z", 0..20);
    assert!(figure(&session, "memory_bytes") < 10_000);
    check(&session);
    database.set_max_memory(None);
    answer(&session, "d", "a", 30_000_000);
    database.make_pre_aggregates();
    assert!(figure(&session, "memory_bytes") > 10_000, "readers ask for them again");
    check(&session);
    let with = database.memory_use().used;
    run(&session, "DROP DEPLOYMENT d");
    // By the thread that makes nodes, if it was about to make some.
    let is_given_back = || {
        lockstep_host::pause(1);
        database.memory_use().used + bytes / 2 < with
    };
    assert!((0..20_000).any(|_| is_given_back()), "it is given back");
}

#[test]
fn a_share_of_the_answers_is_computed_again_from_rows() {
    let (database, session) = filled();
    deploy(&session, "OPTIONS(pre_aggregation='always')");
    database.make_pre_aggregates();
    check(&session);
    database.make_pre_aggregates();
    assert_eq!(figure(&session, "answers_checked"), 0, "none is, unless the variable says so");
    run(&session, "SET GLOBAL pre_aggregation_check = '0.5'");
    for at in 0..40 {
        answer(&session, "d", "a", 20_000_000 + at);
    }
    // Rows that arrive or go meanwhile are no difference.
    insert(&session, "a", [20_000_001].into_iter());
    // A few may be lost to the thread that takes them at that moment.
    let are_checked = || {
        database.make_pre_aggregates();
        lockstep_host::pause(1);
        figure(&session, "answers_checked") >= 10
    };
    assert!((0..20_000).any(|_| are_checked()), "{}", figure(&session, "answers_checked"));
    assert!(figure(&session, "answers_checked") <= 20, "half of them are samples");
    assert_eq!(figure(&session, "differences"), 0);
}

#[test]
fn the_setting_is_part_of_the_deployment() {
    let (_database, session) = filled();
    run(&session, "SET pre_aggregation = 'always'");
    run(&session, &format!("DEPLOY d {FEATURES}"));
    run(&session, "SET pre_aggregation = 'off'");
    run(&session, &format!("DEPLOY e {FEATURES}"));
    let script = |name: &str| text(&session, &format!("SHOW DEPLOYMENT {name}"));
    assert!(script("d").contains("pre_aggregation='always'"), "{}", script("d"));
    assert!(script("e").contains("pre_aggregation='off'"), "{}", script("e"));
    assert_eq!(run(&session, "SELECT * FROM lockstep.pre_aggregates").row_count(), 1);
    let explained = |setting: &str| {
        run(&session, &format!("SET pre_aggregation = '{setting}'"));
        text(&session, &format!("EXPLAIN {FEATURES}"))
    };
    assert!(explained("auto").contains("pre-aggregates"), "{}", explained("auto"));
    assert!(!explained("off").contains("pre-aggregates"));
    let error = session.execute("SET pre_aggregation = 'sometimes'");
    assert!(error.is_err());
    let wrong = format!("DEPLOY f OPTIONS(pre_aggregation='sometimes') {FEATURES}");
    assert!(session.execute(&wrong).is_err());
}
