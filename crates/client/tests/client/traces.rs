//! A collector receives the calls of a Flight client.

use std::{
    io::{Read, Write},
    net::TcpListener,
    sync::mpsc::channel,
    time::Duration,
};

use crate::support::TestServer;

#[test]
fn calls_are_traced() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (sender, received) = channel();
    lockstep_host::spawn("collector", move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut part = vec![0; 100_000];
            let mut request = Vec::new();
            loop {
                let count = stream.read(&mut part).unwrap();
                request.extend_from_slice(&part[..count]);
                if count == 0 || request.windows(13).any(|text| text == b"rpc.grpc.stat") {
                    break;
                }
            }
            let _answered = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
            if sender.send(request).is_err() {
                return;
            }
        }
    })
    .unwrap();
    let settings =
        [("traces.endpoint", endpoint.as_str()), ("traces.sample_per_million", "1000000")];
    let server = TestServer::start(&settings, "CREATE TABLE t (v INT)");
    let client = server.connect();
    client.execute("SELECT v FROM t", None).unwrap().collect().unwrap();
    let mut all = Vec::new();
    let has = |all: &[u8], text: &[u8]| all.windows(text.len()).any(|part| part == text);
    while !(has(&all, b"DoGet") && has(&all, b"execute") && has(&all, b"wait")) {
        all.extend(received.recv_timeout(Duration::from_secs(60)).unwrap());
    }
    assert!(has(&all, b"enduser.id"), "{}", all.escape_ascii());
}
