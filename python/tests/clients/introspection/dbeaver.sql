-- What DBeaver asks of a PostgreSQL server when it opens its tree, in its forms: databases, schemas, types,
-- tables, columns, indexes, functions, roles. Run by test_introspection.py. DBeaver
-- asks for whole rows; here are those columns of them that are the same on every machine.

-- databases
SELECT db.datname, db.datallowconn, db.datconnlimit FROM pg_catalog.pg_database db
WHERE 1 = 1 AND datallowconn AND NOT datistemplate OR db.datname = 'default' ORDER BY db.datname
-- = datname|datallowconn|datconnlimit
-- = default|True|-1

-- database and schema of the session
SELECT current_schema(), session_user, current_database() AS db, version() LIKE 'PostgreSQL 16%' AS is_known
-- = current_schema|session_user|db|is_known
-- = public|root|default|True

-- schemas
SELECT n.oid, n.nspname, n.nspowner, d.description FROM pg_catalog.pg_namespace n
LEFT OUTER JOIN pg_catalog.pg_description d
    ON d.objoid = n.oid AND d.objsubid = 0 AND d.classoid = 'pg_namespace'::regclass
ORDER BY nspname
-- = oid|nspname|nspowner|description
-- = 13000|information_schema|10|
-- = 11|pg_catalog|10|
-- = 2200|public|10|

-- types
SELECT t.typname, c.relkind, format_type(nullif(t.typbasetype, 0), t.typtypmod) AS base, d.description
FROM pg_catalog.pg_type t
LEFT OUTER JOIN pg_catalog.pg_type et ON et.oid = t.typelem
LEFT OUTER JOIN pg_catalog.pg_class c ON c.oid = t.typrelid
LEFT OUTER JOIN pg_catalog.pg_description d ON t.oid = d.objoid
WHERE t.typname IS NOT NULL AND (c.relkind IS NULL OR c.relkind = 'c')
    AND (et.typcategory IS NULL OR et.typcategory <> 'C') AND t.oid IN (23, 1009)
ORDER BY t.oid
-- = typname|relkind|base|description
-- = int4|||
-- = _text|||

-- tables of a schema
SELECT c.relname, c.relkind, c.relpersistence, d.description,
    pg_catalog.pg_get_expr(c.relpartbound, c.oid) AS partition_expr, pg_catalog.pg_get_partkeydef(c.oid) AS partition_key
FROM pg_catalog.pg_class c
LEFT OUTER JOIN pg_catalog.pg_description d
    ON d.objoid = c.oid AND d.objsubid = 0 AND d.classoid = 'pg_class'::regclass
WHERE c.relnamespace = 2200 AND c.relkind NOT IN ('i', 'I', 'c') ORDER BY c.relname
-- = relname|relkind|relpersistence|description|partition_expr|partition_key
-- = numbers|r|p|||
-- = orders|r|p|||

-- columns of a table
SELECT c.relname, a.attname, a.attnum, a.attnotnull, pg_catalog.pg_get_expr(ad.adbin, ad.adrelid, true) AS def_value,
    dsc.description, dep.objid
FROM pg_catalog.pg_attribute a
INNER JOIN pg_catalog.pg_class c ON (a.attrelid = c.oid)
LEFT OUTER JOIN pg_catalog.pg_attrdef ad ON (a.attrelid = ad.adrelid AND a.attnum = ad.adnum)
LEFT OUTER JOIN pg_catalog.pg_description dsc ON (c.oid = dsc.objoid AND a.attnum = dsc.objsubid)
LEFT OUTER JOIN pg_depend dep ON dep.refobjid = a.attrelid AND dep.deptype = 'i' AND dep.refobjsubid = a.attnum
    AND dep.classid = dep.refclassid
WHERE NOT a.attisdropped AND c.relname = 'orders' ORDER BY a.attnum
-- = relname|attname|attnum|attnotnull|def_value|description|objid
-- = orders|user|1|True|||
-- = orders|price|2|False|||
-- = orders|ts|3|False|||
-- = orders|ok|4|False|||
-- = orders|day|5|False|||

-- constraints of a schema
SELECT c.oid, c.conname, t.relname AS tabrelname, pg_catalog.pg_get_constraintdef(c.oid) AS definition
FROM pg_catalog.pg_constraint c
INNER JOIN pg_catalog.pg_class t ON t.oid = c.conrelid WHERE t.relnamespace = 2200 ORDER BY c.oid
-- = oid|conname|tabrelname|definition

-- indexes
SELECT i.indisunique, i.indkey AS keys, tc.relname AS tabrelname, dsc.description,
    pg_catalog.pg_get_expr(i.indpred, i.indrelid) AS pred_expr, pg_catalog.pg_relation_size(i.indexrelid) AS size,
    pg_catalog.pg_stat_get_numscans(i.indexrelid) AS scans, am.amname
FROM pg_catalog.pg_index i
INNER JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
INNER JOIN pg_catalog.pg_class tc ON tc.oid = i.indrelid
LEFT OUTER JOIN pg_catalog.pg_am am ON am.oid = c.relam
LEFT OUTER JOIN pg_catalog.pg_description dsc ON i.indexrelid = dsc.objoid
WHERE tc.relname = 'orders' ORDER BY tabrelname, c.relname
-- = indisunique|keys|tabrelname|description|pred_expr|size|scans|amname
-- = False|1 3|orders|||0||memory

-- functions
SELECT p.proname, l.lanname, p.pronargs, pg_catalog.pg_get_function_result(p.oid) AS result, p.prokind,
    pg_get_function_identity_arguments(p.oid) AS arguments
FROM pg_catalog.pg_proc p
LEFT OUTER JOIN pg_catalog.pg_language l ON l.oid = p.prolang
LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = p.oid
WHERE p.pronamespace = 2200 AND p.prokind <> 'a' ORDER BY p.proname
-- = proname|lanname|pronargs|result|prokind|arguments
-- = total|sql|5|TABLE(user text, spent double precision)|f|user text, price double precision, ts timestamp with time zone, ok boolean, day date

-- roles
SELECT a.rolname, a.rolsuper, pd.description FROM pg_catalog.pg_roles a
LEFT JOIN pg_catalog.pg_shdescription pd ON a.oid = pd.objoid ORDER BY a.rolname
-- = rolname|rolsuper|description
-- = root|True|

-- settings, extensions, tablespaces
SELECT (SELECT count(*) FROM pg_catalog.pg_extension) AS extensions, (SELECT setting FROM pg_settings
    WHERE name = 'standard_conforming_strings') AS strings, t.spcname, pg_catalog.pg_tablespace_location(t.oid) AS loc
FROM pg_catalog.pg_tablespace t
-- = extensions|strings|spcname|loc
-- = 0|on|pg_default|

-- search path
SELECT s.nspname FROM unnest(current_schemas(false)) WITH ORDINALITY AS s (nspname, at)
JOIN pg_namespace n USING (nspname) ORDER BY s.at
-- = nspname
-- = public
