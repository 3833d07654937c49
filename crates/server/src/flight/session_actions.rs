//! The actions about sessions: their options, and their end.
//!
//! The option `schema` is the database, as USE sets it; every other option is a variable of SET.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_engine::Session;
use lockstep_protocol::{
    CloseSessionResult, GetSessionOptionsResult, OptionContent, OptionError, OptionErrorValue,
    SessionOptionValue, SetSessionOptionsRequest, SetSessionOptionsResult,
};
use prost::Message;
use tonic::{Response, Status, metadata::MetadataValue};

use super::{
    actions::{ActionStream, single},
    call::{CallDeadline, CallSession, FlightCall},
    catalog::CATALOG,
    sessions::COOKIE,
    status::malformed,
};
use crate::work_pool::WorkClass;

/// The option with the database.
const SCHEMA: &str = "schema";

/// The values of `CloseSessionResult` that are used.
const CLOSED: i32 = 1;
/// As above.
const NOT_CLOSEABLE: i32 = 3;

impl FlightCall {
    /// Sets options of the session; makes one, whose token is a cookie, where there is none.
    pub(crate) async fn set_session_options(
        &self,
        body: &Bytes,
    ) -> Result<Response<ActionStream>, Status> {
        let request = SetSessionOptionsRequest::decode(&**body);
        let request = request.map_err(|error| self.status(&malformed(error)))?;
        let (call, cookie) = match &self.session {
            CallSession::Lasting(_) => (self.clone(), None),
            CallSession::Login(_) => {
                let token = self.keep_session()?;
                let kept = self.server.sessions.find(&self.server.state, &token);
                let session = kept.map_or_else(|_ended| self.session.clone(), CallSession::Lasting);
                (self.in_session_of(session), Some(token))
            }
        };
        let set = move |session: &Session| {
            let mut errors = HashMap::new();
            // In one order, whatever that of the message.
            let options: BTreeMap<_, _> = request.session_options.into_iter().collect();
            for (name, value) in &options {
                if let Err(error) = set_option(session, name, value) {
                    errors.insert(name.clone(), OptionError { value: error as i32 });
                }
            }
            Ok(SetSessionOptionsResult { errors })
        };
        let result = call.run(WorkClass::Writes, CallDeadline::Request, set).await?;
        let mut response = single(result.encode_to_vec());
        if let Some(token) = cookie
            && let Ok(value) = MetadataValue::try_from(format!("{COOKIE}={token}"))
        {
            response.metadata_mut().insert("set-cookie", value);
        }
        Ok(response)
    }

    /// Returns the options of the session.
    pub(crate) async fn session_options(&self) -> Result<Response<ActionStream>, Status> {
        let read = |session: &Session| {
            let conversion = session.conversion();
            let text = |text: &str| SessionOptionValue {
                value: Some(OptionContent::Text(text.to_owned())),
            };
            let flag =
                SessionOptionValue { value: Some(OptionContent::Flag(conversion.nan_is_null())) };
            let session_options = HashMap::from([
                ("catalog".to_owned(), text(CATALOG)),
                (SCHEMA.to_owned(), text(&session.current_database())),
                ("time_zone".to_owned(), text(&conversion.time_zone())),
                ("compatibility".to_owned(), text(conversion.compatibility())),
                ("nan_as_null".to_owned(), flag),
            ]);
            Ok(GetSessionOptionsResult { session_options })
        };
        let result = self.run(WorkClass::Writes, CallDeadline::Request, read).await?;
        Ok(single(result.encode_to_vec()))
    }

    /// Forgets the session.
    pub(crate) fn close_session(&self) -> Response<ActionStream> {
        let is_closed = match &self.session {
            CallSession::Lasting(kept) => self.server.sessions.remove(kept),
            CallSession::Login(_) => false,
        };
        let status = if is_closed { CLOSED } else { NOT_CLOSEABLE };
        single(CloseSessionResult { status }.encode_to_vec())
    }

    /// Makes a session that lasts. Returns its token.
    pub(crate) fn keep_session(&self) -> Result<String, Status> {
        let CallSession::Login(login) = &self.session else {
            return Err(Status::internal("the call has a session"));
        };
        let keep = || {
            let access = &self.server.state.access;
            let session = login.open().inspect_err(|error| access.forget_ended(login, error))?;
            self.server.sessions.keep(&self.server.state, session)
        };
        keep().map_err(|error: Box<Diagnostic>| self.status(&error))
    }
}

/// Sets an option.
fn set_option(
    session: &Session,
    name: &str,
    value: &SessionOptionValue,
) -> Result<(), OptionErrorValue> {
    let text = match &value.value {
        Some(OptionContent::Text(text)) => text.clone(),
        Some(OptionContent::Flag(flag)) => flag.to_string(),
        Some(OptionContent::Integer(number)) => number.to_string(),
        Some(OptionContent::Number(number)) => number.to_string(),
        Some(OptionContent::List(_)) | None => return Err(OptionErrorValue::InvalidValue),
    };
    if text.contains(['\'', '`', '\\']) {
        return Err(OptionErrorValue::InvalidValue);
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let statement = match name {
        "catalog" if text == CATALOG => return Ok(()),
        "catalog" => return Err(OptionErrorValue::InvalidValue),
        SCHEMA => format!("USE `{text}`"),
        name if !name.is_empty() && name.chars().all(is_name) => match &value.value {
            Some(OptionContent::Text(_)) => format!("SET {name} = '{text}'"),
            _ => format!("SET {name} = {text}"),
        },
        _ => return Err(OptionErrorValue::InvalidName),
    };
    match session.execute(&statement) {
        Ok(_) => Ok(()),
        Err(error) if error.code == lockstep_diagnostic::code::UNDEFINED_OBJECT => {
            Err(OptionErrorValue::InvalidName)
        }
        Err(_) => Err(OptionErrorValue::InvalidValue),
    }
}
