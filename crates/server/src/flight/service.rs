//! The calls of Flight: reads the command of each and passes it to the file that answers it.

use std::{pin::Pin, sync::Arc};

use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo,
    HandshakeRequest, HandshakeResponse, PollInfo, PutResult, SchemaResult, Ticket,
    flight_service_server::FlightService, sql::Command,
};
use futures::{Stream, stream};
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_protocol::{Execute, NamedMessage, TrainingSet};
use prost::Message;
use tonic::{Request, Response, Status, Streaming, metadata::MetadataValue};

use super::{
    FlightServer,
    actions::{ActionStream, action_types},
    call::{CallSession, FlightCall},
    catalog::catalog_schema,
    ingest::read_command,
    rows::FlightDataStream,
    statements::info_of,
    status::malformed,
};

/// A stream of messages.
type MessageStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The calls of one connection.
#[derive(Debug, Clone)]
pub(crate) struct LockstepFlight {
    server: Arc<FlightServer>,
}

impl LockstepFlight {
    /// Makes it.
    pub(crate) fn new(server: Arc<FlightServer>) -> Self {
        Self { server }
    }

    fn call<T>(&self, request: &Request<T>) -> Result<FlightCall, Status> {
        FlightCall::of(&self.server, request)
    }
}

impl FlightCall {
    fn command(&self, bytes: &[u8]) -> Result<Command, Status> {
        read_command(bytes).map_err(|error| self.status(&error))
    }

    /// Describes the result of a command.
    async fn info(&self, descriptor: FlightDescriptor) -> Result<FlightInfo, Status> {
        match self.command(&descriptor.cmd)? {
            Command::CommandStatementQuery(query) => {
                self.info_of_statement(query.query, descriptor).await
            }
            Command::CommandPreparedStatementQuery(query) => {
                self.info_of_prepared(query.prepared_statement_handle, descriptor).await
            }
            command => {
                let Some(schema) = catalog_schema(&command) else {
                    let message =
                        format!("GetFlightInfo does not support command {}", command.type_url());
                    return Err(self.status(&Diagnostic::unsupported(message)));
                };
                let ticket = Ticket::new(descriptor.cmd.clone());
                let info = info_of(descriptor, ticket, Some(&schema));
                info.map_err(|error| self.status(&error))
            }
        }
    }

    /// Returns the rows of a ticket.
    async fn rows(&self, ticket: &Ticket) -> Result<FlightDataStream, Status> {
        match self.command(&ticket.ticket)? {
            Command::TicketStatementQuery(query) => self.rows_of_ticket(&query).await,
            Command::CommandPreparedStatementQuery(query) => {
                self.rows_of_prepared(&query.prepared_statement_handle).await
            }
            Command::Unknown(any) if any.type_url == TrainingSet::type_url() => {
                let set = TrainingSet::decode(any.value);
                self.training_set(set.map_err(|error| self.status(&malformed(error)))?).await
            }
            Command::Unknown(any) if any.type_url == Execute::type_url() => {
                let execute = Execute::decode(any.value);
                self.execute(execute.map_err(|error| self.status(&malformed(error)))?).await
            }
            command => self.catalog(command).await,
        }
    }
}

#[tonic::async_trait]
impl FlightService for LockstepFlight {
    type HandshakeStream = MessageStream<HandshakeResponse>;
    type ListFlightsStream = MessageStream<FlightInfo>;
    type DoGetStream = FlightDataStream;
    type DoPutStream = MessageStream<PutResult>;
    type DoExchangeStream = FlightDataStream;
    type DoActionStream = ActionStream;
    type ListActionsStream = MessageStream<ActionType>;

    /// Makes a session, and returns its token in the header `authorization` and as payload.
    async fn handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        let call = self.call(&request)?;
        let token = match &call.session {
            CallSession::Login(_) => call.keep_session()?,
            // It shows the token of a session: there is nothing to do.
            CallSession::Lasting(_) => String::new(),
        };
        let answer = HandshakeResponse { protocol_version: 0, payload: token.clone().into() };
        let stream: Self::HandshakeStream = Box::pin(stream::iter([Ok(answer)]));
        let mut response = Response::new(stream);
        if !token.is_empty()
            && let Ok(value) = MetadataValue::try_from(format!("Bearer {token}"))
        {
            response.metadata_mut().insert("authorization", value);
        }
        Ok(response)
    }

    async fn list_flights(
        &self,
        request: Request<Criteria>,
    ) -> Result<Response<Self::ListFlightsStream>, Status> {
        let call = self.call(&request)?;
        let error = Diagnostic::unsupported("ListFlights is not supported")
            .with_hint("Use GetTables of Flight SQL to list tables.");
        Err(call.status(&error))
    }

    async fn get_flight_info(
        &self,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        let call = self.call(&request)?;
        Ok(Response::new(call.info(request.into_inner()).await?))
    }

    /// Returns the description at once: a statement runs when its rows are read.
    async fn poll_flight_info(
        &self,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<PollInfo>, Status> {
        let call = self.call(&request)?;
        let info = call.info(request.into_inner()).await?;
        Ok(Response::new(PollInfo::new().with_info(info)))
    }

    async fn get_schema(
        &self,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<SchemaResult>, Status> {
        let call = self.call(&request)?;
        let info = call.info(request.into_inner()).await?;
        if info.schema.is_empty() {
            let message = "cannot determine the columns of this statement without running it";
            return Err(call.status(&Diagnostic::unsupported(message)));
        }
        Ok(Response::new(SchemaResult { schema: info.schema }))
    }

    async fn do_get(
        &self,
        request: Request<Ticket>,
    ) -> Result<Response<Self::DoGetStream>, Status> {
        let call = self.call(&request)?;
        Ok(Response::new(call.rows(request.get_ref()).await?))
    }

    async fn do_put(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoPutStream>, Status> {
        let call = self.call(&request)?;
        let result = call.put(request).await?;
        Ok(Response::new(Box::pin(stream::iter([Ok(result)]))))
    }

    async fn do_exchange(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoExchangeStream>, Status> {
        let call = self.call(&request)?;
        Err(call.status(&Diagnostic::unsupported("DoExchange is not supported")))
    }

    async fn do_action(
        &self,
        request: Request<Action>,
    ) -> Result<Response<Self::DoActionStream>, Status> {
        let call = self.call(&request)?;
        call.action(request.into_inner()).await
    }

    async fn list_actions(
        &self,
        request: Request<Empty>,
    ) -> Result<Response<Self::ListActionsStream>, Status> {
        self.call(&request)?;
        Ok(Response::new(Box::pin(stream::iter(action_types().into_iter().map(Ok)))))
    }
}
