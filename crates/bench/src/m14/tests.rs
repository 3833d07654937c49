//! The client of M14 and its servers, without times.

use std::{cell::RefCell, pin::pin};

use futures::future::{Either, join_all, select};
use lockstep_host::{Clock, SystemClock};
use tokio::runtime::Builder;

use super::{
    connection::{FramedAnswer, Framing},
    features::{FeatureSet, read_answer},
    timer::LoadTimer,
};
use crate::answer::AnswerValue;

#[test]
fn no_request_is_sent_before_it_is_due_and_each_is_sent() {
    let runtime = Builder::new_current_thread().enable_io().build().unwrap();
    let clock = SystemClock::new();
    let timer = {
        let _entered = runtime.enter();
        LoadTimer::new(clock).unwrap()
    };
    let sent = RefCell::new(Vec::new());
    let begin_ns = clock.monotonic_ns();
    // The second one is due first, two are due together, and the last is due at once.
    let times = [2_000_000_u64, 700_000, 5_000_000, 2_000_000, 0];
    let requests = times.iter().enumerate().map(|(connection, offset_ns)| {
        let (timer, sent, due_ns) = (&timer, &sent, begin_ns + offset_ns);
        async move {
            timer.wait_until(due_ns, connection).await.unwrap();
            assert!(clock.monotonic_ns() >= due_ns);
            sent.borrow_mut().push(connection);
        }
    });
    runtime.block_on(async {
        match select(pin!(join_all(requests)), pin!(timer.run())).await {
            Either::Left(_) => {}
            Either::Right((failed, _)) => panic!("{failed:?}"),
        }
    });
    let mut sent = sent.into_inner();
    sent.sort_unstable();
    assert_eq!(sent, [0, 1, 2, 3, 4]);
}

#[test]
fn answers_are_told_from_each_other() {
    let http = b"HTTP/1.1 200 OK\r\ncontent-type: a\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 4";
    let answer = Framing::Http.first(http).unwrap();
    assert_eq!(&http[answer.body..answer.end], b"abc");
    assert!(answer.is_ok);
    assert_eq!(Framing::Http.first(&http[..answer.end - 1]), None);
    assert_eq!(Framing::Http.first(b"HTTP/1.1 200 OK\r\n"), None);
    let refused = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n";
    assert!(!Framing::Http.first(refused).unwrap().is_ok);
    let resp = b"$3\r\nabc\r\n";
    assert_eq!(Framing::Resp.first(resp), Some(FramedAnswer { body: 4, end: 9, is_ok: true }));
    assert_eq!(Framing::Resp.first(b"$3\r\nab"), None);
    assert!(!Framing::Resp.first(b"-ERR wrong\r\n").unwrap().is_ok);
}

#[test]
fn an_answer_of_postgres_ends_with_ready() {
    let answer = b"2\0\0\0\x04D\0\0\0\x10\0\x02\0\0\0\x027!\xff\xff\xff\xffZ\0\0\0\x05I";
    let found = Framing::Postgres.first(answer).unwrap();
    assert_eq!(found, FramedAnswer { body: 0, end: answer.len(), is_ok: true });
    assert_eq!(Framing::Postgres.first(&answer[..answer.len() - 1]), None);
    let expected = [AnswerValue::Text("7!".into()), AnswerValue::Null];
    assert_eq!(super::postgres::read_answer(answer, &expected).unwrap(), expected);
    let error = b"E\0\0\0\x05\0Z\0\0\0\x05I";
    assert!(!Framing::Postgres.first(error).unwrap().is_ok);
}

#[test]
fn answers_are_read_as_the_expected_kinds() {
    let expected = [
        AnswerValue::Double(0.5),
        AnswerValue::Int(7),
        AnswerValue::Text("a".into()),
        AnswerValue::Null,
    ];
    let found = read_answer(br#"{"a":0.5,"b":7,"c":"a","d":null}"#, &expected).unwrap();
    assert_eq!(found, expected);
    let exact = [AnswerValue::Double(39_503.049_999_999_996)];
    assert_eq!(read_answer(br#"{"a":39503.049999999996}"#, &exact).unwrap(), exact);
    let found = read_answer(br#"{"a":1,"b":7.5,"c":"a","d":0}"#, &expected).unwrap();
    assert_ne!(found[1], expected[1]);
    assert_ne!(found[3], expected[3]);
    assert!(read_answer(b"{}", &expected).is_err());
}

#[test]
fn bodies_are_objects_with_all_columns() {
    for (set, columns) in [(FeatureSet::M1, 30), (FeatureSet::M2, 102)] {
        let bodies = set.bodies();
        assert_eq!(bodies.len(), set.request_count());
        let json: serde_json::Value = serde_json::from_str(&bodies[0]).unwrap();
        assert_eq!(json.as_object().unwrap().len(), columns);
        assert_eq!(FeatureSet::of_name(set.name()), Some(set));
    }
}
