//! The client of M14 and its servers, without times.

use std::{cell::RefCell, pin::pin};

use futures::future::{Either, join_all, select};
use lockstep_host::{Clock, SystemClock};
use tokio::runtime::Builder;

use super::{
    connection::{FramedAnswer, Framing},
    features::{FeatureSet, read_answer},
    http2::{self, Http2State},
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
fn an_answer_of_http2_ends_with_its_stream() {
    let settings = b"\0\0\0\x04\0\0\0\0\0";
    let acknowledged = b"\0\0\0\x04\x01\0\0\0\0";
    let (head, data) = (b"\0\0\x01\x01\x04\0\0\0\x01\x88", b"\0\0\x02\0\0\0\0\0\x01ab");
    let (more, trailers) = (b"\0\0\x01\0\0\0\0\0\x01c", b"\0\0\x01\x01\x05\0\0\0\x01\x88");
    let first = Framing::Http2.first(settings).unwrap();
    assert_eq!(first, FramedAnswer { body: 0, end: 9, is_ok: true });
    let answer = [&acknowledged[..], head, data, more, trailers, &acknowledged[..4]].concat();
    let found = Framing::Http2.first(&answer).unwrap();
    assert_eq!(found, FramedAnswer { body: 0, end: answer.len() - 4, is_ok: true });
    assert_eq!(http2::body(&answer), b"abc");
    assert_eq!(Framing::Http2.first(&answer[..answer.len() - 5]), None);
    // An error is headers alone, a stream that is given up, or the end of the connection.
    assert!(!Framing::Http2.first(trailers).unwrap().is_ok);
    assert!(!Framing::Http2.first(b"\0\0\0\x03\0\0\0\0\x01").unwrap().is_ok);
    assert!(!Framing::Http2.first(b"\0\0\0\x07\0\0\0\0\0").unwrap().is_ok);
}

#[test]
fn a_request_of_http2_has_its_stream_in_each_frame() {
    let long = "a".repeat(300);
    let body = vec![7; 20_000];
    let request = http2::request(&[(":path", "/x"), ("long", &long)], &body);
    assert_eq!(http2::body(&request), body);
    // Behind the length of 300: seven ones, then 300 - 127 = 173 in two groups.
    let at = request.windows(4).position(|part| part == b"long").unwrap();
    assert_eq!(request[at + 4..at + 7], [127, 0xad, 0x01]);
    let mut state = Http2State::default();
    let mut sent = Vec::new();
    state.write(&http2::opening(), &mut sent);
    assert_eq!(sent, http2::opening());
    for stream in [1_u32, 3] {
        sent.clear();
        state.write(&request, &mut sent);
        // Only the first request acknowledges the settings, only the second one enlarges the window.
        let own = if stream == 1 { 9 } else { 13 };
        assert_eq!(sent.len(), request.len() + own);
        let frames = &sent[own..];
        assert_eq!(frames[5..9], stream.to_be_bytes());
        let data = frames.windows(3).position(|part| part == [0, 0x40, 0]).unwrap();
        assert_eq!(frames[data + 5..data + 9], stream.to_be_bytes());
        state.note(b"\0\0\x02\0\x01\0\0\0\x01ab");
    }
    assert_eq!(sent[9..13], 2_u32.to_be_bytes());
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
