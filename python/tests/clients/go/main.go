// Program clients asks a server with pgx and lib/pq and prints what it answers, for
// `python/tests/test_clients_go.py`.
//
// The arguments are the port and the name of a scenario. A line is printed for each answer.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lib/pq"
)

var noon = time.Date(2024, 1, 1, 12, 0, 0, 0, time.UTC)

func main() {
	port, scenario := os.Args[1], os.Args[2]
	url := fmt.Sprintf("postgres://root@127.0.0.1:%s/default?sslmode=disable", port)
	scenarios := map[string]func(context.Context, string) error{
		"simple": func(ctx context.Context, url string) error {
			return query(ctx, url+"&default_query_exec_mode=simple_protocol")
		},
		"extended": query,
		"exec":     func(ctx context.Context, url string) error { return query(ctx, url+"&default_query_exec_mode=exec") },
		"copy":     copyFrom,
		"batch":    batch,
		"errors":   failures,
		"lib/pq":   libpq,
	}
	if err := scenarios[scenario](context.Background(), url); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// query runs statements with parameters, in the mode that the URL names.
func query(ctx context.Context, url string) error {
	db, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer db.Close(ctx)
	for run := 0; run < 2; run++ {
		var user string
		var price float64
		var at time.Time
		var ok bool
		row := db.QueryRow(ctx, "SELECT user, price, ts, ok FROM orders WHERE user = $1 AND price > $2", "ann", 1.0)
		if err := row.Scan(&user, &price, &at, &ok); err != nil {
			return err
		}
		fmt.Println(user, price, at.UTC().Format(time.RFC3339), ok)
	}
	var spent float64
	call := "SELECT spent FROM total(user => $1, price => $2, ts => $3, ok => $4, day => $5)"
	if err := db.QueryRow(ctx, call, "ann", 2.5, noon, true, nil).Scan(&spent); err != nil {
		return err
	}
	fmt.Println(spent)
	rows, err := db.Query(ctx, "SELECT number FROM numbers WHERE number <= $1 ORDER BY number", int32(3))
	if err != nil {
		return err
	}
	numbers, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	if err != nil {
		return err
	}
	fmt.Println(numbers)
	var name string
	catalog := "SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid WHERE a.attname = $1 AND a.attnum = $2 AND c.relname = $3"
	if err := db.QueryRow(ctx, catalog, "user", int16(1), "orders").Scan(&name); err != nil {
		return err
	}
	fmt.Println(name)
	return nil
}

// copyFrom appends rows with the binary format of COPY.
func copyFrom(ctx context.Context, url string) error {
	db, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer db.Close(ctx)
	create := "CREATE TABLE go_copied (user STRING, price DOUBLE, ts TIMESTAMP, ok BOOL, n INT)"
	if _, err := db.Exec(ctx, create); err != nil {
		return err
	}
	columns := []string{"user", "price", "ts", "ok", "n"}
	source := pgx.CopyFromSlice(1000, func(i int) ([]any, error) {
		return []any{fmt.Sprintf("u%d", i), float64(i), noon, i%2 == 0, int32(i)}, nil
	})
	copied, err := db.CopyFrom(ctx, pgx.Identifier{"go_copied"}, columns, source)
	if err != nil {
		return err
	}
	var count int64
	var total float64
	if err := db.QueryRow(ctx, "SELECT count(*), sum(price) FROM go_copied").Scan(&count, &total); err != nil {
		return err
	}
	fmt.Println(copied, count, total)
	return nil
}

// batch sends several statements at once.
func batch(ctx context.Context, url string) error {
	db, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer db.Close(ctx)
	several := &pgx.Batch{}
	for number := 1; number <= 5; number++ {
		several.Queue("SELECT number FROM numbers WHERE number = $1", number)
	}
	results := db.SendBatch(ctx, several)
	for number := 1; number <= 5; number++ {
		var found int
		if err := results.QueryRow().Scan(&found); err != nil {
			return err
		}
		fmt.Print(found, " ")
	}
	fmt.Println()
	return results.Close()
}

// failures prints the codes of errors, and that the connection goes on.
func failures(ctx context.Context, url string) error {
	db, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer db.Close(ctx)
	_, err = db.Exec(ctx, "SELECT nothing FROM orders")
	var found *pgconn.PgError
	if errors.As(err, &found) {
		fmt.Println(found.Code, found.Position)
	}
	limited, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	slow := "SELECT count(*) FROM numbers a, numbers b, numbers c, numbers d, numbers e, numbers f, numbers g, numbers h, numbers i"
	_, err = db.Exec(limited, slow)
	fmt.Println(err != nil, db.IsClosed())
	again, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer again.Close(ctx)
	var one int
	if err := again.QueryRow(ctx, "SELECT 1").Scan(&one); err != nil {
		return err
	}
	fmt.Println(one)
	return nil
}

// libpq runs statements through database/sql with the other driver.
func libpq(ctx context.Context, url string) error {
	db, err := sql.Open("postgres", url)
	if err != nil {
		return err
	}
	defer db.Close()
	var user string
	var price float64
	statement := "SELECT user, price FROM orders WHERE user = $1 AND price > $2"
	if err := db.QueryRowContext(ctx, statement, "ann", 1.0).Scan(&user, &price); err != nil {
		return err
	}
	fmt.Println(user, price)
	if _, err := db.ExecContext(ctx, "CREATE TABLE pq_copied (user STRING, price DOUBLE)"); err != nil {
		return err
	}
	block, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	rows, err := block.PrepareContext(ctx, pq.CopyIn("pq_copied", "user", "price"))
	if err != nil {
		return err
	}
	for number := 0; number < 100; number++ {
		if _, err := rows.ExecContext(ctx, fmt.Sprintf("u%d", number), number); err != nil {
			return err
		}
	}
	if _, err := rows.ExecContext(ctx); err != nil {
		return err
	}
	if err := rows.Close(); err != nil {
		return err
	}
	if err := block.Commit(); err != nil {
		return err
	}
	var count int
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM pq_copied").Scan(&count); err != nil {
		return err
	}
	fmt.Println(count)
	_, err = db.ExecContext(ctx, "SELECT nothing FROM orders")
	var found *pq.Error
	if errors.As(err, &found) {
		fmt.Println(found.Code)
	}
	return nil
}
