//! The names in a path: percent-decoded text, whose errors have a body like all others.

use axum::{
    extract::{FromRequestParts, Path},
    http::{StatusCode, request::Parts},
};

use super::error::HttpError;

/// The `N` names of a path, in order.
#[derive(Debug)]
pub(crate) struct PathNames<const N: usize>(pub(crate) [String; N]);

impl<S: Send + Sync, const N: usize> FromRequestParts<S> for PathNames<N> {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, HttpError> {
        let wrong = || HttpError::protocol(StatusCode::BAD_REQUEST, "the path is not valid UTF-8");
        let names = Path::<Vec<(String, String)>>::from_request_parts(parts, state).await;
        let Path(names) = names.map_err(|_rejection| wrong())?;
        let names: Vec<String> = names.into_iter().map(|(_, name)| name).collect();
        Ok(Self(names.try_into().map_err(|_more: Vec<String>| wrong())?))
    }
}
