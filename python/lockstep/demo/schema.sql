-- Tables of the demonstration. No index is declared: deploying the query creates the index that
-- each window and join requires.

-- Calendar functions use New York's time zone; stored times are in UTC.
SET time_zone = 'America/New_York';

-- A flight at its scheduled departure, `ts`; columns that are not yet known are NULL.
CREATE TABLE flights (
  flight_id BIGINT, ts TIMESTAMP, carrier STRING, flight INT, tailnum STRING, origin STRING,
  dest STRING, distance INT, scheduled_minutes INT, dep_delay INT, arr_delay INT, air_minutes INT
);

-- Departure of a flight: `ts` is one minute after it left, but at the earliest one minute after the
-- scheduled time, so that no flight sees its own departure. `dep_delay` is known.
CREATE TABLE departures (
  flight_id BIGINT, ts TIMESTAMP, carrier STRING, flight INT, tailnum STRING, origin STRING,
  dest STRING, distance INT, scheduled_minutes INT, dep_delay INT, arr_delay INT, air_minutes INT
);

-- Arrival of a flight at time `ts`. `arr_delay` and `air_minutes` are known.
CREATE TABLE arrivals (
  flight_id BIGINT, ts TIMESTAMP, carrier STRING, flight INT, tailnum STRING, origin STRING,
  dest STRING, distance INT, scheduled_minutes INT, dep_delay INT, arr_delay INT, air_minutes INT
);

-- Hourly weather at the departure airports. The reading for an hour is known at that hour.
CREATE TABLE weather (
  origin STRING, ts TIMESTAMP, temp DOUBLE, humid DOUBLE, wind_speed DOUBLE, wind_gust DOUBLE,
  precip DOUBLE, pressure DOUBLE, visib DOUBLE
);

-- Aircraft register, with the columns of its CSV file.
CREATE TABLE planes (
  tailnum STRING, year INT, type STRING, manufacturer STRING, model STRING, engines INT,
  seats INT, speed INT, engine STRING
);
