//! Files in FROM: `'clicks/*.parquet'`, `read_csv('a.csv', 'b.csv', delimiter = ';')`; and those of an
//! external table: `STORED AS PARQUET LOCATION 'clicks/*.parquet'`.
//!
//! `query` and `definition` call it. The engine checks which functions and options exist.

use lockstep_diagnostic::Result;

use crate::ast::{FilePath, FileTable, Ident, Query, SelectItem, TableRef};
use crate::cursor::Parser;
use crate::token::TokenKind;

/// How the names of the functions begin.
const FUNCTION_PREFIX: &str = "read_";

/// The formats of an external table: the ends of the functions' names.
const EXTERNAL_FORMATS: &[&str] = &["PARQUET", "CSV", "JSON", "ARROW", "DELTA", "ICEBERG"];

impl Parser<'_> {
    /// Parses the files of an item of FROM; `None` where it is something else.
    pub(crate) fn file_table(&mut self) -> Result<Option<FileTable>> {
        let start = self.start();
        let token = self.peek();
        // A name may be in quotes as well, and has none of these.
        let text = self.text(token);
        if token.kind == TokenKind::String
            && text.starts_with('\'')
            && text.contains(['.', '/', '*'])
        {
            let (text, span) = self.string()?;
            let paths = vec![FilePath { text, span }];
            return Ok(Some(FileTable { function: None, paths, options: Vec::new(), span }));
        }
        let is_function = token.kind == TokenKind::Word
            && self.nth_is_symbol(1, "(")
            && text.to_ascii_lowercase().starts_with(FUNCTION_PREFIX);
        if !is_function {
            return Ok(None);
        }
        let mut function = self.any_ident()?;
        function.text.make_ascii_lowercase();
        let mut files = FileTable {
            paths: Vec::new(),
            options: Vec::new(),
            span: function.span,
            function: None,
        };
        self.expect_symbol("(")?;
        self.file_arguments(&function, &mut files)?;
        self.expect_symbol(")")?;
        debug_assert!(!files.paths.is_empty(), "the arguments begin with a path");
        Ok(Some(FileTable { function: Some(function), span: self.span_from(start), ..files }))
    }

    /// Parses the paths, of which there is at least one, and after them the options.
    fn file_arguments(&mut self, function: &Ident, files: &mut FileTable) -> Result<()> {
        loop {
            if self.at_symbol("[") {
                self.advance();
                files.paths.extend(self.comma_list(Self::file_path)?);
                self.expect_symbol("]")?;
            } else if self.peek().kind == TokenKind::String && !self.nth_is_symbol(1, "=") {
                files.paths.push(self.file_path()?);
            } else if files.paths.is_empty() {
                let hint =
                    format!("Write a path as the first argument: {}('path', …).", function.text);
                return self.unexpected().with_hint(hint).err();
            } else {
                files.options.push(self.option_item()?);
            }
            self.grow(1)?;
            if !self.at_symbol(",") {
                return Ok(());
            }
            self.advance();
        }
    }

    /// Parses the files of an external table; returns the query of all their columns, at the position of
    /// what was parsed.
    pub(crate) fn external_files(&mut self) -> Result<Query> {
        let start = self.start();
        self.expect_word("STORED")?;
        self.expect_word("AS")?;
        if !self.at_any_word(EXTERNAL_FORMATS) {
            let hint = format!("The supported formats are {}.", EXTERNAL_FORMATS.join(", "));
            return self.unexpected().with_hint(hint).err();
        }
        let format = self.any_ident()?;
        if self.at_words(&["PARTITIONED", "BY"]) {
            let hint = "Omit PARTITIONED BY: directories named column=value are read as columns.";
            return self.unexpected().with_hint(hint).err();
        }
        let mut options = self.options_clause("OPTIONS")?;
        self.expect_word("LOCATION")?;
        let path = self.file_path()?;
        if options.is_empty() {
            options = self.options_clause("OPTIONS")?;
        }
        let span = self.span_from(start);
        debug_assert!(path.span.end <= span.end, "the path is a part of it");
        let name = format!("{FUNCTION_PREFIX}{}", format.text.to_ascii_lowercase());
        let function = Some(Ident { text: name, span: format.span });
        let files = FileTable { function, paths: vec![path], options, span };
        let items = vec![SelectItem::Star { qualifier: None, span }];
        let from = TableRef::Files { files: Box::new(files), alias: None };
        Ok(Query::of_items(items, Some(from), span))
    }

    fn file_path(&mut self) -> Result<FilePath> {
        self.string().map(|(text, span)| FilePath { text, span })
    }
}
