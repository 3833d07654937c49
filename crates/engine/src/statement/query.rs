//! SELECT: in batch mode, or in request mode when the query's CONFIG says so.

use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_sql::ast::Query;

use super::{
    into_outfile::Outfile,
    query_config::{QueryConfig, request_rows},
};
use crate::{
    Output, Parameter, Relation, Session,
    catalog::DEFAULT_DATABASE,
    known::KnownQuery,
    named_source::{ArrowRows, FindObject, NamedSources, not_stored},
    parameters::only_rows,
    relation::{QueryLints, RelationContext},
    variables::Storage,
    view::requirements_of,
};

impl Session {
    /// Binds a query over the data that the session reads, without running it.
    pub(crate) fn relation(
        &self,
        query: &Query,
        parameters: &[Parameter],
        objects: Option<FindObject<'_>>,
    ) -> Result<Relation> {
        let known = KnownQuery::of(query)?;
        let query = known.as_ref().map_or(query, |(_, plain)| plain);
        let (bound, mut warnings) = self.bind_naming(query, parameters, objects)?;
        let (config, of_config) = QueryConfig::read(&query.config)?;
        warnings.extend(of_config);
        let requests = request_rows(self, &config, &bound)?;
        let storage = config.storage().unwrap_or_else(|| self.storage());
        let lints = QueryLints::of_query(self.seen_queries(), &bound, query);
        let guard = match self.caller().is_process() {
            true => None,
            false => self.guard(requirements_of(&bound))?,
        };
        let is_batch = requests.is_none() && storage == Storage::Online;
        let context = RelationContext { lints, ..self.relation_context(storage, warnings) };
        let relation = Relation::new(self.database.clone(), bound, context, requests, guard);
        match known {
            None => Ok(relation),
            Some((known, _)) if is_batch => Ok(relation.with_known(known)),
            Some((known, _)) => known.not_online().err(),
        }
    }

    /// Binds a query over rows that it knows by a name, and over nothing that the catalog has. It runs as
    /// this session's: with its rights to files, its limits and its temporary space, within the thread's
    /// call.
    pub(crate) fn relation_over(&self, sql: &str, name: &str, rows: ArrowRows) -> Result<Relation> {
        let prepared = self.prepare_query(sql, &[])?;
        let query = only_rows(&prepared.parsed)?;
        if KnownQuery::of(query)?.is_some() {
            return not_stored(name).err();
        }
        let sources = NamedSources::of_rows(DEFAULT_DATABASE, name, rows)?;
        let (bound, mut warnings) = self.bind_over(query, sources)?;
        let (config, of_config) = QueryConfig::read(&query.config)?;
        warnings.extend(of_config);
        let requests = request_rows(self, &config, &bound)?;
        let context = self.relation_context(Storage::Online, warnings);
        Ok(Relation::new(self.database.clone(), bound, context, requests, None))
    }

    /// Returns what the session says now of how a query runs.
    fn relation_context(&self, storage: Storage, warnings: Vec<Diagnostic>) -> RelationContext {
        RelationContext {
            storage,
            conversion: self.conversion(),
            limits: self.limits(),
            temporary: self.temporary_storage(),
            window_skew: self.variables().window_skew(),
            caller: self.caller().clone(),
            warnings,
            lints: None,
        }
    }

    /// Runs a query, with INTO OUTFILE into a file; that is a job, and so is any in offline mode.
    pub(crate) fn run_query(
        &self,
        query: &Query,
        sql: &str,
        parameters: &[Parameter],
    ) -> Result<Output> {
        let (storage, settings) = (self.storage(), self.settings());
        let run = || {
            let outfile = query.into_outfile.as_ref();
            let outfile =
                outfile.map(|written| Outfile::new(written, settings, storage)).transpose()?;
            let relation = self.relation(query, parameters, None)?;
            match outfile {
                Some(outfile) => outfile.write(&relation),
                None => relation.collect(None),
            }
        };
        match (storage, &query.into_outfile) {
            (Storage::Online, None) => run(),
            (Storage::Online, Some(_)) => self.run_job("ExportOnlineData", sql, run),
            (Storage::Offline, None) => self.run_job("BatchSql", sql, run),
            (Storage::Offline, Some(_)) => self.run_job("ExportOfflineData", sql, run),
        }
    }
}
