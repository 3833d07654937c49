//! Statements, queries and options as s-expressions.

use lockstep_sql::ast::{
    AlterTableAction, ColumnDefinition, CreateTable, Deploy, IgnoredRows, Insert, LoadData,
    ObjectName, ObjectPart, OptionItem, OptionValue, ParameterDefinition, PrimaryKey, Privileges,
    Query, Select, SelectItem, SetExpr, Statement, TableRef, UserDefinition, VerifyAgainst,
    ViewForm,
};

use super::expression::{expr, idents, literal, object, order_by, window};
use super::{clause, flag, list};

pub(super) fn statement(statement: &Statement) -> String {
    match statement {
        Statement::Query(value) => query(value),
        Statement::Explain { query: value, analyze } => {
            list("explain", [flag(*analyze, "analyze"), query(value)])
        }
        Statement::VerifyDeployment { name, against, options: items } => {
            let against = flag(*against == VerifyAgainst::Answers, "against-answers");
            list("verify-deployment", [object(name), against, options("options", items)])
        }
        Statement::CreateDatabase { name, if_not_exists } => {
            list("create-database", [flag(*if_not_exists, "if-not-exists"), name.text.clone()])
        }
        Statement::DropDatabase { name, if_exists } => {
            drop_object("database", *if_exists, &name.text)
        }
        Statement::Use(name) => list("use", [name.text.clone()]),
        Statement::CreateTable(table) => create_table(table),
        Statement::DropTable { names, if_exists, cascade } => {
            drop_cascading("table", *if_exists, &objects(names), flag(*cascade, "cascade"))
        }
        Statement::CreateView(view) => list(
            match view.form {
                ViewForm::View => "create-view",
                ViewForm::ExternalTable => "create-external-table",
            },
            [
                flag(view.or_replace, "or-replace"),
                flag(view.if_not_exists, "if-not-exists"),
                object(&view.name),
                query(&view.query),
            ],
        ),
        Statement::DropView { name, if_exists, cascade } => {
            drop_cascading("view", *if_exists, &object(name), flag(*cascade, "cascade"))
        }
        Statement::CreateIndex(index) => list(
            "create-index",
            [
                index.name.text.clone(),
                object(&index.table),
                list("columns", idents(&index.columns)),
                options("options", &index.options),
            ],
        ),
        Statement::Insert(value) => insert(value),
        Statement::LoadData(load) => load_data(load),
        Statement::Deploy(value) => deploy(value),
        Statement::DropDeployment { name, if_exists } => {
            drop_object("deployment", *if_exists, &object(name))
        }
        Statement::Show(show) => list("show", [show_text(&format!("{show:?}"))]),
        Statement::Describe(name) => list("describe", [object(name)]),
        Statement::Set { name, value, global } => {
            list("set", [flag(*global, "global"), name.text.clone(), option_value(value)])
        }
        other => other_statement(other),
    }
}

/// Returns the statements that no engine executes yet.
fn other_statement(statement: &Statement) -> String {
    match statement {
        Statement::DropIndex { table, name } => {
            list("drop-index", [object(table), name.text.clone()])
        }
        Statement::Delete { table, filter } => {
            let filter = clause("where", filter.iter().map(|filter| expr(filter)));
            list("delete", [object(table), filter])
        }
        Statement::Truncate(names) => list("truncate", [objects(names)]),
        Statement::AlterTable { table, actions } => {
            let actions = actions.iter().map(action);
            list("alter-table", [object(table)].into_iter().chain(actions))
        }
        Statement::CreateProcedure(procedure) => list(
            "create-procedure",
            [
                flag(procedure.or_replace, "or-replace"),
                flag(procedure.temporary, "temporary"),
                flag(procedure.if_not_exists, "if-not-exists"),
                object(&procedure.name),
                parameters(&procedure.parameters),
                options("options", &procedure.options),
            ]
            .into_iter()
            .chain(procedure.body.iter().map(query)),
        ),
        Statement::DropProcedure { name, if_exists } => {
            drop_object("procedure", *if_exists, &object(name))
        }
        Statement::Call { name, arguments, analyze } => {
            let head = [flag(*analyze, "analyze"), object(name)];
            list("call", head.into_iter().chain(arguments.iter().map(expr)))
        }
        Statement::CreateFunction(function) => list(
            "create-function",
            [
                flag(function.aggregate, "aggregate"),
                function.name.text.clone(),
                parameters(&function.parameters),
                list("returns", [function.returns.to_string()]),
                options("options", &function.options),
            ],
        ),
        Statement::DropFunction { name, if_exists } => {
            drop_object("function", *if_exists, &name.text)
        }
        Statement::CreateUser(definition) => user("create-user", definition),
        Statement::AlterUser(definition) => user("alter-user", definition),
        Statement::DropUser { name, if_exists } => drop_object("user", *if_exists, &name.text),
        Statement::StopJob(id) => list("stop-job", [id.clone()]),
        Statement::DeleteJob(id) => list("delete-job", [id.clone()]),
        Statement::Privileges(change) => privileges(change),
        Statement::Exit => list("exit", []),
        other => format!("{other:?}"),
    }
}

fn action(action: &AlterTableAction) -> String {
    match action {
        AlterTableAction::OfflinePath { add, path, .. } => {
            list(if *add { "add" } else { "drop" }, [format!("{path:?}")])
        }
        AlterTableAction::AddColumn { column, if_not_exists } => {
            list("add-column", [flag(*if_not_exists, "if-not-exists"), self::column(column)])
        }
        AlterTableAction::DropColumn { column, if_exists } => {
            list("drop-column", [flag(*if_exists, "if-exists"), column.text.clone()])
        }
        AlterTableAction::AddPrimaryKey(key) => list("add", [primary_key(key)]),
        AlterTableAction::RenameColumn { column, to } => {
            list("rename-column", [column.text.clone(), to.text.clone()])
        }
        AlterTableAction::SetOptions { options: items, .. } => options("set", items),
    }
}

fn privileges(change: &Privileges) -> String {
    let quoted =
        |text: &str| if text.contains(' ') { format!("{text:?}") } else { text.to_owned() };
    let mut parts: Vec<String> = change.privileges.iter().map(|name| quoted(&name.text)).collect();
    parts.push(change.object_kind.clone().unwrap_or_default());
    let part = |part: &ObjectPart| match part {
        ObjectPart::All(_) => "*".to_owned(),
        ObjectPart::Name(name) => name.text.clone(),
    };
    parts.push(change.object.iter().map(part).collect::<Vec<_>>().join("."));
    parts.push(list("to", idents(&change.users)));
    parts.push(flag(change.with_grant_option, "with-grant-option"));
    list(if change.is_granted { "grant" } else { "revoke" }, parts)
}

fn objects(names: &[ObjectName]) -> String {
    names.iter().map(object).collect::<Vec<_>>().join(" ")
}

fn drop_object(what: &str, if_exists: bool, name: &str) -> String {
    list(&format!("drop-{what}"), [flag(if_exists, "if-exists"), name.to_owned()])
}

fn drop_cascading(what: &str, if_exists: bool, name: &str, cascade: String) -> String {
    list(&format!("drop-{what}"), [flag(if_exists, "if-exists"), name.to_owned(), cascade])
}

/// Returns the debug text without spans.
fn show_text(debug: &str) -> String {
    let mut text = String::new();
    for (index, part) in debug.split(", span: Span {").enumerate() {
        let kept =
            if index == 0 { part } else { part.split_once('}').map_or("", |(_, rest)| rest) };
        text.push_str(kept);
    }
    text
}

fn user(head: &str, user: &UserDefinition) -> String {
    let conditional = flag(user.conditional, "conditional");
    list(head, [conditional, user.name.text.clone(), options("options", &user.options)])
}

fn parameters(parameters: &[ParameterDefinition]) -> String {
    clause(
        "parameters",
        parameters.iter().map(|parameter| {
            let constant = flag(parameter.constant, "const");
            list(&parameter.name.text, [constant, parameter.data_type.to_string()])
        }),
    )
}

fn primary_key(key: &PrimaryKey) -> String {
    list("primary-key", idents(&key.columns))
}

fn create_table(table: &CreateTable) -> String {
    let like = table.like.iter().map(|like| format!("{} {:?}", like.format, like.path));
    let indexes = table.indexes.iter().map(|index| {
        let name = index.name.iter().map(|name| name.text.clone());
        list("index", name.chain(index.options.iter().map(option_item)))
    });
    let keys = table.primary_keys.iter().map(primary_key);
    let parts = [flag(table.if_not_exists, "if-not-exists"), object(&table.name)]
        .into_iter()
        .chain(table.columns.iter().map(column))
        .chain(indexes)
        .chain(keys)
        .chain([clause("like", like), options("options", &table.options)])
        .chain(table.query.iter().map(query));
    list("create-table", parts)
}

fn column(column: &ColumnDefinition) -> String {
    let default = clause("default", column.default.iter().map(expr));
    let not_null = flag(column.not_null, "not-null");
    list(&column.name.text, [column.data_type.to_string(), not_null, default])
}

fn ignored_rows(ignored: &IgnoredRows) -> String {
    match ignored {
        IgnoredRows::None => String::new(),
        IgnoredRows::Equal => "or-ignore".to_owned(),
        IgnoredRows::WithKeys { columns, .. } => {
            list("on-conflict", columns.iter().flatten().map(|column| column.text.clone()))
        }
    }
}

fn insert(insert: &Insert) -> String {
    let columns = clause("columns", idents(&insert.columns));
    let rows = insert.rows.iter().map(|row| list("row", row.values.iter().map(expr)));
    let head = [ignored_rows(&insert.ignored), object(&insert.table), columns];
    list("insert", head.into_iter().chain(rows).chain(insert.query.iter().map(query)))
}

fn load_data(load: &LoadData) -> String {
    let options = [options("options", &load.options), options("config", &load.config)];
    list("load-data", [format!("{:?}", load.path), object(&load.table)].into_iter().chain(options))
}

fn deploy(deploy: &Deploy) -> String {
    let if_not_exists = flag(deploy.if_not_exists, "if-not-exists");
    let options = options("options", &deploy.options);
    list("deploy", [if_not_exists, object(&deploy.name), options, query(&deploy.query)])
}

pub(super) fn query(query: &Query) -> String {
    let with = query.with.iter().map(|entry| {
        let columns = clause("columns", idents(&entry.columns));
        list(&entry.name.text, [columns, self::query(&entry.query)])
    });
    let into = query.into_outfile.iter().map(|into| {
        let options = options("options", &into.options);
        list("into-outfile", [format!("{:?}", into.path), options])
    });
    let parts = [clause("with", with), set_expression(&query.body), order_by(&query.order_by)]
        .into_iter()
        .chain([clause("limit", query.limit.iter().map(|limit| limit.count.to_string()))])
        .chain([clause("offset", query.offset.iter().map(|offset| offset.count.to_string()))])
        .chain(query.known_at.iter().map(|known| {
            let column = known.column.as_ref().map_or("arrival", |column| column.text.as_str());
            list("known-at", [column.to_owned()])
        }))
        .chain(into)
        .chain([options("config", &query.config)]);
    let parts: Vec<String> = parts.filter(|part| !part.is_empty()).collect();
    if let [body] = parts.as_slice() { body.clone() } else { list("query", parts) }
}

fn set_expression(body: &SetExpr) -> String {
    match body {
        SetExpr::Select(value) => select(value),
        SetExpr::Union { all, sources } => {
            let head = if *all { "union-all" } else { "union" };
            list(head, sources.iter().map(set_expression))
        }
        SetExpr::Query(inner) => list("parens", [query(inner)]),
    }
}

fn select(select: &Select) -> String {
    let windows = select.windows.iter().map(|named| list(&named.name.text, [window(&named.spec)]));
    let parts = [flag(select.distinct, "distinct")]
        .into_iter()
        .chain(select.items.iter().map(select_item))
        .chain([
            clause("from", select.from.iter().map(table)),
            clause("where", select.filter.iter().map(expr)),
            clause("group-by", select.group_by.iter().map(expr)),
            clause("having", select.having.iter().map(expr)),
            clause("windows", windows),
        ]);
    list("select", parts)
}

fn select_item(item: &SelectItem) -> String {
    match item {
        SelectItem::Star { qualifier: None, .. } => "*".to_owned(),
        SelectItem::Star { qualifier: Some(table), .. } => format!("{}.*", object(table)),
        SelectItem::Expr { expr: value, alias: None } => expr(value),
        SelectItem::Expr { expr: value, alias: Some(alias) } => {
            list("as", [expr(value), alias.text.clone()])
        }
    }
}

pub(super) fn table(table: &TableRef) -> String {
    let (text, alias) = match table {
        TableRef::Table { name, alias } => (object(name), alias),
        TableRef::Subquery { query: inner, alias } => (query(inner), alias),
        TableRef::Files { files, alias } => {
            let function = files.function.as_ref().map_or("files", |name| name.text.as_str());
            let paths = files.paths.iter().map(|path| format!("{:?}", path.text));
            (list(function, paths.chain(files.options.iter().map(option_item))), alias)
        }
        TableRef::Renamed { table, columns } => {
            return list("renamed", [self::table(table)].into_iter().chain(idents(columns)));
        }
        TableRef::Join(join) => {
            let on = clause("on", join.on.iter().map(expr));
            let head = format!("{:?}-join", join.kind);
            return list(
                &head,
                [self::table(&join.left), self::table(&join.right), order_by(&join.order_by), on],
            );
        }
    };
    match alias {
        Some(alias) => list("as", [text, alias.text.clone()]),
        None => text,
    }
}

fn options(head: &str, items: &[OptionItem]) -> String {
    clause(head, items.iter().map(option_item))
}

fn option_item(item: &OptionItem) -> String {
    format!("{}={}", item.key.text, option_value(&item.value))
}

fn option_value(value: &OptionValue) -> String {
    match value {
        OptionValue::Literal(value) => literal(value),
        OptionValue::Word(word) => word.clone(),
        OptionValue::Expr(value) => expr(value),
        OptionValue::List(values) => {
            let values: Vec<String> = values.iter().map(option_value).collect();
            format!("[{}]", values.join(" "))
        }
    }
}
