//! Traces of statements over PostgreSQL's protocol, whose comments name them.

use crate::{
    postgres_client::{frame, texts},
    postgres_extended::run,
    support::get,
    traces::{Collector, PARENT, Span, server},
};

/// Returns the spans of calls, in the order in which they were sent.
fn calls(spans: &[Span]) -> Vec<&Span> {
    spans.iter().filter(|span| span.kind == 2).collect()
}

/// Returns the names of the phases of a call.
fn phases<'s>(spans: &'s [Span], call: &Span) -> Vec<&'s str> {
    let phases = spans.iter().filter(|span| span.kind == 1 && span.parent == call.id);
    phases.map(|phase| phase.name.as_str()).collect()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a statement with the comment of a client that wants a trace.
fn traced(sql: &str) -> String {
    format!("{sql} /*application='shop',traceparent='{PARENT}',request_id='request%209'*/;")
}

fn check_parent(call: &Span) {
    assert_eq!(hexadecimal(&call.trace), PARENT[3..35]);
    assert_eq!(hexadecimal(&call.parent), PARENT[36..52]);
    assert_eq!(call.text("lockstep.request_id"), "request 9");
    assert_eq!(call.text("enduser.id"), "root");
}

#[test]
fn a_statement_is_traced_where_its_comment_says_so() {
    let collector = Collector::start("200 OK");
    let server = server(&collector, "0");
    let mut client = server.session_postgres(&[]);
    assert_eq!(client.query("SELECT k, v FROM t").tags, ["SELECT 0"]);
    let script = format!("INSERT INTO t VALUES ('a', 1, 1000); {}", traced("SELECT k FROM t"));
    assert_eq!(client.query(&script).tags, ["INSERT 0 1", "SELECT 1"]);
    let spans = collector.spans(1);
    let found = calls(&spans);
    let [call] = found.as_slice() else { panic!("one call: {spans:?}") };
    check_parent(call);
    assert_eq!(call.name, "SELECT");
    assert_eq!(call.number("lockstep.rows"), Some(1));
    assert_eq!(call.text("db.response.status_code"), "00000");
    assert_eq!(call.status, None);
    assert_eq!(phases(&spans, call), ["parse", "wait", "execute", "render"]);
}

#[test]
fn calls_of_deployments_are_traced_in_both_protocols() {
    let collector = Collector::start("200 OK");
    let server = server(&collector, "0");
    let mut client = server.session_postgres(&[]);
    let sql = traced("SELECT v FROM d(k => 'a', v => 7, ts => '2024-01-01')");
    assert_eq!(client.query(&sql).value(), "7");
    let sql = traced("SELECT v FROM d('a', $1, '2024-01-01')");
    assert_eq!(run(&mut client, &sql, &["8"]).value(), "8");
    let spans = collector.spans(2);
    for (call, expected) in calls(&spans)
        .into_iter()
        .zip([&["parse", "parse", "execute", "render"][..], &["parse", "execute", "render"]])
    {
        check_parent(call);
        assert_eq!((call.name.as_str(), call.text("lockstep.deployment")), ("SELECT", "d"));
        assert_eq!(call.number("lockstep.rows"), Some(1));
        assert_eq!(phases(&spans, call), expected);
    }
}

#[test]
fn rows_are_copied_with_a_trace() {
    let collector = Collector::start("200 OK");
    let server = server(&collector, "0");
    let mut client = server.session_postgres(&[]);
    assert_eq!(client.query(&traced("COPY t FROM STDIN")).status, 'G');
    let rows = b"a\t1\t2024-01-01\nb\t2\t2024-01-01\n";
    client.send(&[frame(b'd', rows), frame(b'c', b"")].concat());
    assert_eq!(client.reply().tags, ["COPY 2"]);
    assert_eq!(client.query(&traced("COPY (SELECT k FROM t) TO STDOUT")).tags, ["COPY 2"]);
    let spans = collector.spans(2);
    for (call, expected) in calls(&spans)
        .into_iter()
        .zip([&["parse", "wait", "execute"][..], &["parse", "wait", "execute", "render"]])
    {
        check_parent(call);
        assert_eq!((call.name.as_str(), call.number("lockstep.rows")), ("COPY", Some(2)));
        assert_eq!(phases(&spans, call), expected);
    }
}

#[test]
fn statements_that_fail_are_traced_with_their_sqlstate() {
    let collector = Collector::start("200 OK");
    let server = server(&collector, "1000000");
    let mut client = server.session_postgres(&[]);
    assert_eq!(client.query("SELECT nothing FROM t").code(), "42703");
    assert_eq!(client.query("SELECT 'no end").code(), "42601");
    // A Parse, which fails, and a Sync.
    let parse = [&texts(&["", "SELECT 1; SELECT 2"])[..], &[0, 0]].concat();
    client.send(&[frame(b'P', &parse), frame(b'S', b"")].concat());
    assert_eq!(client.reply().code(), "42601");
    let spans = collector.spans(3);
    let found = calls(&spans).into_iter().map(|call| {
        let status = call.status.clone().unwrap_or_default();
        assert_eq!(status.code, 2);
        (call.name.clone(), status.message, call.parent.is_empty())
    });
    let expected = |name: &str, code: &str| (name.to_owned(), format!("SQLSTATE {code}"), true);
    assert_eq!(
        found.collect::<Vec<_>>(),
        [expected("SELECT", "42703"), expected("SELECT", "42601"), expected("SELECT", "42601")]
    );
}

#[test]
fn a_prepared_statement_is_one_call_each_time_it_runs() {
    let collector = Collector::start("200 OK");
    let server = server(&collector, "1000000");
    let mut client = server.session_postgres(&[]);
    let refused = traced("SELECT k FROM t").replace("-01'", "-00'");
    assert_eq!(run(&mut client, &refused, &[]).tags, ["SELECT 0"]);
    assert_eq!(run(&mut client, "SELECT k FROM t", &[]).tags, ["SELECT 0"]);
    // The call of HTTP is the second one that arrives: preparing is none.
    assert_eq!(server.send(get("/readyz")).status, 200);
    let spans = collector.spans(2);
    let found: Vec<&str> = calls(&spans).iter().map(|call| call.name.as_str()).collect();
    assert_eq!(found, ["SELECT", "GET /readyz"]);
}
