//! The functions and types of other databases that go by other names here, and what to write for them.

/// Names in lower case, and the hint for all of them.
const ELSEWHERE: &[(&[&str], &str)] = &[
    (
        &["row_number", "rank", "dense_rank"],
        "The function requires compatibility = 'standard' and a window: add OVER (PARTITION BY … \
         ORDER BY …) after the call.",
    ),
    (&["nth_value"], "Write first_value(x), last_value(x), or lag(x, n)."),
    (
        &["lead", "ntile", "percent_rank", "cume_dist"],
        "The function requires later rows, which a feature cannot read; use lag(x, n) to read \
         earlier rows.",
    ),
    (
        &["array_agg", "list", "string_agg", "group_concat", "listagg"],
        "Aggregates cannot return lists; use top(x, n) or topn_frequency(x, n), which return \
         strings.",
    ),
    (&["any_value", "arbitrary"], "Write last_value(x), or min(x)."),
    (
        &["arg_max", "max_by", "argmax", "arg_min", "min_by", "argmin"],
        "Use LAST JOIN … ORDER BY to find the row with the largest value.",
    ),
    (&["mode"], "Write topn_frequency(x, 1)."),
    (
        &["quantile", "quantile_cont", "percentile_disc", "approx_quantile"],
        "Write percentile(x, 0.5), or median(x).",
    ),
    (&["stdev"], "Write stddev(x)."),
    (
        &["count_if", "countif"],
        "Write count_where(x, condition), or count(*) FILTER (WHERE condition).",
    ),
    (&["sum_if", "sumif"], "Write sum_where(x, condition), or sum(x) FILTER (WHERE condition)."),
    (&["bool_and", "every"], "Write min(int(condition)) = 1."),
    (&["bool_or"], "Write max(int(condition)) = 1."),
    (&["extract", "datepart"], "Write extract(year FROM t) or date_part('year', t)."),
    (
        &["age", "date_diff", "timestampdiff"],
        "Write t1 - t2 for milliseconds, or datediff(t1, t2).",
    ),
    (
        &["date_sub", "dateadd"],
        "Write t + 5m or t - INTERVAL '1' DAY, or add_months(t, n) to add months.",
    ),
    (
        &["from_unixtime", "strptime", "str_to_date", "parse_datetime"],
        "Write timestamp(x) to convert a string or milliseconds, or to_timestamp(seconds).",
    ),
    (&["to_date"], "Write date(x)."),
    (
        &["epoch_ms", "to_unixtime"],
        "Write bigint(t) for milliseconds, or unix_timestamp(t) for seconds.",
    ),
    (&["epoch"], "Write unix_timestamp(t)."),
    (&["to_char", "strftime"], "Write date_format(t, '%Y-%m-%d')."),
    (&["instr", "position", "strpos", "charindex"], "Write locate(part, text)."),
    (&["contains"], "Write text LIKE '%part%', or locate(part, text) > 0."),
    (&["split_part", "string_split", "str_split"], "Write split(text, delimiter)[n]."),
    (
        &["json_extract", "json_extract_string", "json_value"],
        "Write get_json_object(text, '/name').",
    ),
    (&["decode"], "Write CASE x WHEN … THEN … END."),
    (&["md5", "sha1", "sha256", "sha2", "crc32"], "Write hash64(x)."),
    (
        &["random", "rand", "uuid", "gen_random_uuid", "newid"],
        "A feature must have the same value whenever it is computed; generate random values in the \
         application, or write hash64(x) % n.",
    ),
    (
        &["row", "struct_pack", "tuple"],
        "Row values are not supported: select the values one by one, or write array(a, b) or \
         map(key, value).",
    ),
    (
        &["covar_pop", "covar_samp", "corr", "regr_slope", "regr_intercept", "regr_r2"],
        "Aggregates over pairs of values are not supported; avg(x * y) - avg(x) * avg(y) is the \
         covariance.",
    ),
    (
        &[
            "array_sort",
            "list_sort",
            "array_append",
            "list_append",
            "array_distinct",
            "list_distinct",
        ],
        "Functions that modify lists are not supported.",
    ),
    (&["try_cast"], "Use CAST, which returns NULL for a string that is not a valid value."),
    (&["unnest", "explode", "generate_series"], "Expressions cannot return several rows."),
    (
        &["rollup", "cube", "grouping"],
        "Write a query with GROUP BY for each set of columns, and combine the queries with UNION \
         ALL.",
    ),
];

/// Types in lower case, and the hint for all of them.
const TYPES: &[(&[&str], &str)] = &[
    (
        &["decimal", "numeric", "number", "money"],
        "Write DOUBLE, to which decimal values of Python, Arrow and Parquet are rounded, or BIGINT \
         for a count of the smallest unit.",
    ),
    (&["uuid", "json", "jsonb", "xml", "enum", "inet"], "Write STRING."),
    (&["bytea", "blob", "binary", "varbinary"], "Write STRING, for example with hex digits."),
    (
        &["timestamp_s", "timestamp_us", "timestamp_ns"],
        "Write TIMESTAMP: milliseconds since 1970, UTC.",
    ),
    (
        &["char", "character", "bpchar", "nchar", "nvarchar", "varchar2", "name"],
        "Write STRING, or VARCHAR(n) for strings of at most n characters.",
    ),
    (&["time", "interval"], "Write BIGINT, for a number of milliseconds."),
    (&["serial", "bigserial", "hugeint", "ubigint"], "Write BIGINT."),
    (&["uinteger", "uint"], "Write BIGINT, which can represent all values of the type."),
    (&["tinyint", "utinyint"], "Write SMALLINT, which can represent all values of the type."),
    (&["usmallint"], "Write INT, which can represent all values of the type."),
    (
        &["struct", "list", "array", "vector"],
        "Columns cannot contain lists or structures; store a string.",
    ),
];

/// Returns what to write for a type of another database.
pub(crate) fn type_hint(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let known = TYPES.iter().find(|(names, _)| names.contains(&name.as_str()));
    known.map(|(_, hint)| *hint)
}

/// Returns what to write for a function of another database.
pub(crate) fn hint(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    debug_assert!(!name.is_empty(), "a call has a name");
    let known = ELSEWHERE.iter().find(|(names, _)| names.contains(&name.as_str()));
    known.map(|(_, hint)| *hint)
}

#[cfg(test)]
mod tests;
