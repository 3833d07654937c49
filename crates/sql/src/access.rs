//! Users, roles, tokens and privileges: GRANT, REVOKE, KILL, and what follows CREATE and DROP.
//!
//! `statement` and `definition` call this when they have read the first words of a statement.

use lockstep_diagnostic::Result;

use crate::ast::{
    CreateToken, Ident, ObjectPart, Privileges, RoleMembership, Statement, UserDefinition,
};
use crate::cursor::Parser;
use crate::token::TokenKind;

/// The kinds of object that GRANT names before the object.
const OBJECT_KINDS: &[&str] = &["TABLE", "DATABASE", "DEPLOYMENT"];

impl Parser<'_> {
    /// Parses `CREATE USER`, `CREATE ROLE` and `CREATE TOKEN` after their first word; `None` at another
    /// word.
    pub(crate) fn create_for_access(&mut self) -> Result<Option<Statement>> {
        let created = if self.eat_word("USER") {
            let conditional = self.eat_words(&["IF", "NOT", "EXISTS"]);
            let name = self.user_name()?;
            let options = self.options_clause("OPTIONS")?;
            Statement::CreateUser(UserDefinition { name, conditional, options })
        } else if self.eat_word("ROLE") {
            let if_not_exists = self.eat_words(&["IF", "NOT", "EXISTS"]);
            Statement::CreateRole { name: self.user_name()?, if_not_exists }
        } else if self.eat_word("TOKEN") {
            let name = self.any_ident()?;
            let user = if self.eat_word("FOR") { Some(self.user_name()?) } else { None };
            let options = self.options_clause("OPTIONS")?;
            Statement::CreateToken(CreateToken { name, user, options })
        } else {
            return Ok(None);
        };
        Ok(Some(created))
    }

    /// Parses `DROP USER`, `DROP ROLE` and `DROP TOKEN` after their first word; `None` at another word.
    pub(crate) fn drop_for_access(&mut self) -> Result<Option<Statement>> {
        let dropped = if self.eat_word("USER") {
            let if_exists = self.eat_words(&["IF", "EXISTS"]);
            Statement::DropUser { name: self.user_name()?, if_exists }
        } else if self.eat_word("ROLE") {
            let if_exists = self.eat_words(&["IF", "EXISTS"]);
            Statement::DropRole { name: self.user_name()?, if_exists }
        } else if self.eat_word("TOKEN") {
            let if_exists = self.eat_words(&["IF", "EXISTS"]);
            let name = self.any_ident()?;
            let user = if self.eat_word("FOR") { Some(self.user_name()?) } else { None };
            Statement::DropToken { name, user, if_exists }
        } else {
            return Ok(None);
        };
        Ok(Some(dropped))
    }

    /// Parses `KILL [QUERY | CONNECTION] id`.
    pub(crate) fn kill(&mut self) -> Result<Statement> {
        self.expect_word("KILL")?;
        let query_only = self.eat_word("QUERY");
        if !query_only {
            self.eat_word("CONNECTION");
        }
        let start = self.start();
        let session = self.count()?;
        Ok(Statement::Kill { session, query_only, span: self.span_from(start) })
    }

    /// Parses `GRANT privileges ON [TABLE | DATABASE | DEPLOYMENT] object TO users
    /// [WITH GRANT OPTION]`, `GRANT roles TO users`, and REVOKE with FROM.
    pub(crate) fn privileges(&mut self) -> Result<Statement> {
        let is_granted = self.eat_word("GRANT");
        if !is_granted {
            self.expect_word("REVOKE")?;
        }
        let preposition = if is_granted { "TO" } else { "FROM" };
        if self.is_of_roles(preposition) {
            let roles = self.comma_list(Self::user_name)?;
            self.expect_word(preposition)?;
            let members = self.comma_list(Self::user_name)?;
            return Ok(Statement::Membership(RoleMembership { is_granted, roles, members }));
        }
        let privileges = self.comma_list(Self::privilege)?;
        self.expect_word("ON")?;
        let object_kind = match self.text(self.peek()).to_ascii_uppercase() {
            kind if OBJECT_KINDS.contains(&kind.as_str())
                && self.peek().kind == TokenKind::Word
                && !self.nth_is_symbol(1, ".")
                && !self.nth_is_word(1, preposition) =>
            {
                self.advance();
                Some(kind)
            }
            _ => None,
        };
        let mut object = vec![self.object_part()?];
        if self.eat_symbol(".") {
            object.push(self.object_part()?);
        }
        self.expect_word(preposition)?;
        let users = self.comma_list(Self::user_name)?;
        let with_grant_option = is_granted && self.eat_words(&["WITH", "GRANT", "OPTION"]);
        Ok(Statement::Privileges(Privileges {
            is_granted,
            privileges,
            object_kind,
            object,
            users,
            with_grant_option,
        }))
    }

    /// Returns whether the preposition comes before ON: then the list is one of roles.
    fn is_of_roles(&self, preposition: &str) -> bool {
        let mut count = 0;
        loop {
            let token = self.peek_nth(count);
            if token.kind == TokenKind::End || self.nth_is_word(count, "ON") {
                return false;
            }
            if count > 0 && self.nth_is_word(count, preposition) {
                return true;
            }
            count += 1;
        }
    }

    /// Parses `SELECT`, `CREATE USER`, `ALL [PRIVILEGES]`.
    fn privilege(&mut self) -> Result<Ident> {
        let mut name = self.any_ident()?;
        name.text.make_ascii_uppercase();
        if name.text == "ALL" {
            self.eat_word("PRIVILEGES");
        }
        while self.peek().kind == TokenKind::Word && !self.at_word("ON") {
            let next = self.any_ident()?;
            name.span = name.span.to(next.span);
            name.text = format!("{} {}", name.text, next.text.to_ascii_uppercase());
        }
        Ok(name)
    }

    /// Parses a name, or `*`.
    fn object_part(&mut self) -> Result<ObjectPart> {
        if self.at_symbol("*") {
            let span = self.advance().span();
            return Ok(ObjectPart::All(span));
        }
        self.any_ident().map(ObjectPart::Name)
    }

    /// Parses `name`, `'name'`, `name@host`; the host is ignored.
    pub(crate) fn user_name(&mut self) -> Result<Ident> {
        let name = self.name_or_text()?;
        if self.eat_symbol("@") {
            self.name_or_text()?;
        }
        Ok(name)
    }

    fn name_or_text(&mut self) -> Result<Ident> {
        if self.peek().kind == TokenKind::String {
            return self.string().map(|(text, span)| Ident { text, span });
        }
        self.any_ident()
    }
}
