//! SET and SET GLOBAL.

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_sql::ast::{Ident, OptionValue};

use crate::{Output, Session, catalog::CatalogCommand, variables::Variables};

impl Session {
    /// Runs SET: changes a variable of the session, or with GLOBAL of the engine.
    pub(crate) fn set(&self, name: &Ident, value: &OptionValue, is_global: bool) -> Result<Output> {
        let value = self.checked_value(name, value)?;
        if is_global {
            let command = CatalogCommand::SetVariable { name: name.clone(), value };
            self.database.commit(&command)?;
            let warnings = self.database.objects().variables().warning(name);
            return Ok(Output {
                warnings: warnings.into_iter().collect(),
                ..Output::of_message("SET")
            });
        }
        if Variables::is_global_only(name) {
            let message = format!("variable `{}` can only be set with SET GLOBAL", name.text);
            return Diagnostic::new(code::INVALID_PARAMETER, message)
                .at(name.span)
                .with_hint(format!("SET GLOBAL {} = ...", name.text))
                .err();
        }
        let warning = self.set_variable(name, &value)?;
        Ok(Output { warnings: warning.into_iter().collect(), ..Output::of_message("SET") })
    }
}
