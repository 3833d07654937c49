-- Questions of Metabase over a table, in the forms of its PostgreSQL driver: quoted names with their schema, casts,
-- date_trunc, relative dates. Run by test_tool_queries.py.

-- rows of a table
SELECT "public"."sales"."id" AS "id", "public"."sales"."product" AS "product", "public"."sales"."amount" AS "amount",
    "public"."sales"."sold_at" AS "sold_at" FROM "public"."sales" ORDER BY "public"."sales"."id" ASC LIMIT 2

-- count
SELECT COUNT(*) AS "count" FROM "public"."sales"

-- sum by month
SELECT DATE_TRUNC('month', "public"."sales"."sold_at") AS "sold_at", SUM("public"."sales"."amount") AS "sum"
FROM "public"."sales" GROUP BY DATE_TRUNC('month', "public"."sales"."sold_at")
ORDER BY DATE_TRUNC('month', "public"."sales"."sold_at") ASC

-- filter of a time
SELECT COUNT(*) AS "count" FROM "public"."sales"
WHERE ("public"."sales"."sold_at" >= timestamp with time zone '2024-02-01 00:00:00.000Z')
    AND ("public"."sales"."sold_at" < timestamp with time zone '2024-03-01 00:00:00.000Z')

-- filter of the last 30 days
SELECT COUNT(*) AS "count" FROM "public"."sales"
WHERE ("public"."sales"."sold_at" >= DATE_TRUNC('day', (NOW() + (INTERVAL '-30 day'))))
    AND ("public"."sales"."sold_at" < DATE_TRUNC('day', NOW()))

-- filter of the last 12 months
SELECT COUNT(*) AS "count" FROM "public"."sales"
WHERE ("public"."sales"."sold_at" >= DATE_TRUNC('month', (NOW() + (INTERVAL '-12 month'))))
    AND ("public"."sales"."sold_at" < DATE_TRUNC('month', NOW()))

-- filter of a day
SELECT COUNT(*) AS "count" FROM "public"."sales"
WHERE CAST("public"."sales"."sold_at" AS date) BETWEEN date '2024-01-01' AND date '2024-01-31'

-- hour of the day, day of the week
SELECT EXTRACT(hour FROM "public"."sales"."sold_at") AS "hour",
    (CAST(extract(dow from "public"."sales"."sold_at") AS integer) + 1) AS "day", COUNT(*) AS "count"
FROM "public"."sales" WHERE "public"."sales"."sold_at" IS NOT NULL
GROUP BY EXTRACT(hour FROM "public"."sales"."sold_at"),
    (CAST(extract(dow from "public"."sales"."sold_at") AS integer) + 1)
ORDER BY 1 ASC, 2 ASC

-- local time
SELECT DATE_TRUNC('day', ("public"."sales"."sold_at" AT TIME ZONE 'America/New_York')) AS "day", COUNT(*) AS "count"
FROM "public"."sales" WHERE "public"."sales"."id" < 3
GROUP BY DATE_TRUNC('day', ("public"."sales"."sold_at" AT TIME ZONE 'America/New_York')) ORDER BY 1 ASC

-- bins of a number
SELECT FLOOR(("public"."sales"."amount" / 10.0)) * 10.0 AS "amount", COUNT(*) AS "count" FROM "public"."sales"
WHERE "public"."sales"."amount" IS NOT NULL
GROUP BY FLOOR(("public"."sales"."amount" / 10.0)) * 10.0 ORDER BY 1 ASC

-- nested question
SELECT "source"."product" AS "product", AVG("source"."amount") AS "avg"
FROM (SELECT "public"."sales"."product" AS "product", "public"."sales"."amount" AS "amount" FROM "public"."sales"
    WHERE "public"."sales"."amount" > 0.0) AS "source"
GROUP BY "source"."product" ORDER BY "avg" DESC, "source"."product" ASC LIMIT 3

-- join
SELECT "Products"."title" AS "Products__title", COUNT(*) AS "count" FROM "public"."sales"
LEFT JOIN "public"."products" AS "Products" ON "public"."sales"."product" = "Products"."code"
GROUP BY "Products"."title" ORDER BY "count" DESC, "Products"."title" ASC

-- search in a text
SELECT "public"."sales"."id" AS "id" FROM "public"."sales"
WHERE (LOWER("public"."sales"."product") LIKE '%en%') ORDER BY "public"."sales"."id" ASC

-- distinct values
SELECT "public"."sales"."product" AS "product" FROM "public"."sales"
GROUP BY "public"."sales"."product" ORDER BY "public"."sales"."product" ASC LIMIT 5000

-- fingerprint of columns
SELECT SUBSTRING("public"."sales"."product", 1, 1234) AS "substring1", "public"."sales"."amount" AS "amount"
FROM "public"."sales" LIMIT 1
