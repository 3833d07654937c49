//! The body of an answer over HTTP/2, in parts, so that a client that takes none of them is seen.
//!
//! Over HTTP/1.1 a client that does not read fills the socket. Over HTTP/2 it withholds the window of a
//! stream, while it goes on answering pings: the body then waits here, where [`Activity`] counts its
//! time.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use crate::connections::{Activity, WaitingAnswer};

/// The bytes of a part: those of the largest frame that every client takes.
const PART_BYTES: usize = 16_384;

/// A body whose parts are given out one by one.
pub(crate) struct WatchedBody {
    body: Body,
    /// What the body has given and was not given out.
    rest: Bytes,
    waiting: WaitingAnswer,
}

impl WatchedBody {
    /// Watches a body.
    pub(crate) fn new(body: Body, activity: &Arc<Activity>) -> Self {
        Self { body, rest: Bytes::new(), waiting: activity.begin_answer() }
    }
}

impl HttpBody for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.waiting.note_taken();
        if self.rest.is_empty() {
            let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => self.rest = data,
                Some(Ok(Err(other))) => return Poll::Ready(Some(Ok(other))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        let size = self.rest.len().min(PART_BYTES);
        let part = self.rest.split_to(size);
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        let hint = self.body.size_hint();
        let mut all = SizeHint::new();
        all.set_lower(hint.lower() + rest);
        if let Some(upper) = hint.upper() {
            all.set_upper(upper + rest);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::Pin,
        sync::Arc,
        task::{Context, Poll, Waker},
    };

    use axum::body::Body;
    use hyper::body::Body as HttpBody;
    use lockstep_host::ManualClock;

    use super::{PART_BYTES, WatchedBody};
    use crate::connections::Activity;

    #[test]
    fn a_body_is_given_in_parts_and_its_wait_is_counted() {
        let clock = Arc::new(ManualClock::new(0));
        clock.advance_ms(1_000);
        let activity = Activity::new(Arc::<ManualClock>::clone(&clock));
        let bytes: Vec<u8> = (0..=250).cycle().take(PART_BYTES * 2 + 5).collect();
        let mut body = WatchedBody::new(Body::from(bytes.clone()), &activity);
        assert_eq!(body.size_hint().exact(), Some(bytes.len() as u64));
        clock.advance_ms(7);
        assert_eq!(activity.answer_waits_ms(), 7);
        let mut found = Vec::new();
        let mut cx = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(frame)) = Pin::new(&mut body).poll_frame(&mut cx) {
            let part = frame.unwrap().into_data().unwrap();
            assert!(part.len() <= PART_BYTES);
            assert_eq!(activity.answer_waits_ms(), 0);
            found.extend_from_slice(&part);
        }
        assert!(found == bytes && body.is_end_stream());
        clock.advance_ms(7);
        drop(body);
        assert_eq!(activity.answer_waits_ms(), 0);
    }
}
