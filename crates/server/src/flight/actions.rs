//! `DoAction`: which actions there are, and those of Flight and Flight SQL itself.

use arrow_flight::{
    Action, ActionType, CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, FlightInfo,
    sql::{
        ActionCancelQueryRequest, ActionCancelQueryResult, ActionClosePreparedStatementRequest,
        ActionCreatePreparedStatementRequest, Any, Command, ProstMessageExt,
    },
};
use bytes::Bytes;
use futures::{Stream, stream};
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_protocol::ACTIONS;
use prost::Message;
use std::pin::Pin;
use tonic::{Response, Status};

use super::{
    call::FlightCall, ingest::read_command, statements::StatementTicket, status::malformed,
};

/// The results of an action.
pub(crate) type ActionStream =
    Pin<Box<dyn Stream<Item = Result<arrow_flight::Result, Status>> + Send>>;

/// The actions of Flight and Flight SQL that are answered, with what they do.
const STANDARD: &[(&str, &str)] = &[
    ("CreatePreparedStatement", "Prepares a statement."),
    ("ClosePreparedStatement", "Closes a prepared statement."),
    ("CancelQuery", "Cancels the statement of a ticket."),
    ("CancelFlightInfo", "Cancels the statement of a ticket."),
    ("SetSessionOptions", "Sets the database (schema) and variables of the session."),
    ("GetSessionOptions", "Returns the options of the session."),
    ("CloseSession", "Closes the session."),
];

/// The values of `ActionCancelQueryResult` that are used.
const CANCEL_RESULT_CANCELLED: i32 = 1;
/// As above.
const CANCEL_RESULT_NOT_CANCELLABLE: i32 = 3;

/// Returns what `ListActions` says.
pub(crate) fn action_types() -> Vec<ActionType> {
    let all = STANDARD.iter().chain(ACTIONS);
    all.map(|(name, description)| ActionType {
        r#type: (*name).to_owned(),
        description: (*description).to_owned(),
    })
    .collect()
}

impl FlightCall {
    /// Answers an action.
    pub(crate) async fn action(&self, action: Action) -> Result<Response<ActionStream>, Status> {
        let body = action.body;
        match action.r#type.as_str() {
            "CreatePreparedStatement" => {
                let request: ActionCreatePreparedStatementRequest = self.unpack(&body)?;
                let prepared = self.prepare(request.query).await?;
                Ok(single(prepared.as_any().encode_to_vec()))
            }
            "ClosePreparedStatement" => {
                let request: ActionClosePreparedStatementRequest = self.unpack(&body)?;
                let user = self.session.user();
                self.server.prepared.close(user, &request.prepared_statement_handle);
                Ok(nothing())
            }
            "CancelQuery" => {
                let request: ActionCancelQueryRequest = self.unpack(&body)?;
                let info = FlightInfo::decode(request.info);
                let info = info.map_err(|error| self.status(&malformed(error)))?;
                let result = if self.cancel_info(&info) {
                    CANCEL_RESULT_CANCELLED
                } else {
                    CANCEL_RESULT_NOT_CANCELLABLE
                };
                let result = ActionCancelQueryResult { result };
                Ok(single(result.as_any().encode_to_vec()))
            }
            "CancelFlightInfo" => {
                let request = CancelFlightInfoRequest::decode(body);
                let request = request.map_err(|error| self.status(&malformed(error)))?;
                let found = request.info.is_some_and(|info| self.cancel_info(&info));
                let status =
                    if found { CancelStatus::Cancelled } else { CancelStatus::NotCancellable };
                Ok(single(CancelFlightInfoResult::new(status).encode_to_vec()))
            }
            "SetSessionOptions" => self.set_session_options(&body).await,
            "GetSessionOptions" => self.session_options().await,
            "CloseSession" => Ok(self.close_session()),
            "BeginTransaction" | "EndTransaction" | "BeginSavepoint" | "EndSavepoint" => {
                let error = Diagnostic::unsupported("transactions are not supported").with_hint(
                    "Run each statement on its own: it commits immediately. To append rows to \
                     several tables atomically, use a single append.",
                );
                Err(self.status(&error))
            }
            name => match self.own_action(name, &body).await? {
                Some(results) => Ok(Response::new(results)),
                None => {
                    let message = format!("action {name} is not supported");
                    Err(self.status(&Diagnostic::unsupported(message)))
                }
            },
        }
    }

    /// Reads the message of an action of Flight SQL.
    fn unpack<M: ProstMessageExt>(&self, body: &Bytes) -> Result<M, Status> {
        let unpack = || -> Result<M> {
            let any = Any::decode(&**body).map_err(malformed)?;
            let found = any.unpack::<M>().map_err(malformed)?;
            found.ok_or_else(|| {
                malformed("the body of the action contains a different message type")
            })
        };
        unpack().map_err(|error| self.status(&error))
    }

    /// Cancels what runs for the tickets of a result. Returns whether something did.
    fn cancel_info(&self, info: &FlightInfo) -> bool {
        let tickets = info.endpoint.iter().filter_map(|endpoint| endpoint.ticket.as_ref());
        let mut is_found = false;
        for ticket in tickets {
            if let Ok(Command::TicketStatementQuery(query)) = read_command(&ticket.ticket)
                && let Ok(ticket) = StatementTicket::decode(&*query.statement_handle)
            {
                is_found |= self.server.running.cancel(self.session.user(), &ticket.id);
            }
        }
        is_found
    }
}

/// Makes the response of one result.
pub(crate) fn single(body: Vec<u8>) -> Response<ActionStream> {
    Response::new(single_stream(body))
}

/// Makes the stream of one result.
pub(crate) fn single_stream(body: Vec<u8>) -> ActionStream {
    Box::pin(stream::iter([Ok(arrow_flight::Result::new(body))]))
}

fn nothing() -> Response<ActionStream> {
    Response::new(Box::pin(stream::empty()))
}
