"""Lockstep in batch mode against DuckDB, on queries that both dialects can say.

The generator writes each query twice, once in each dialect, from one tree (``node``). Tables are
small and full of NULLs, extreme numbers, equal texts and equal times. ``compare`` runs both texts
in this process and compares the rows as multisets, bit for bit except for the functions marked
below; a difference is shrunk (``shrink``) and printed as a script that stands on its own.

    cd python/tests && python -m differential --queries 100000 --seed 1

Tables are drawn by turns for the default mode and for the compatibility mode; ``modes`` lists
where these two differ. A run ends with the constructs that were drawn, and how often in each mode.

What differs on purpose, and how the generator gets around it:

=================================== ====================== ======================= =================
what                                Lockstep               DuckDB                  the generator
=================================== ====================== ======================= =================
integer + - * DIV, -x, abs, casts   NULL beyond the type   error                   HUGEINT, TRY_CAST
sum of integers                     BIGINT, NULL beyond    HUGEINT                 ``TRY_CAST``
sum of doubles                      correctly rounded      order of evaluation     sums exact values
stddev, variance, exp, ln, …        over exact sums; libm  one pass; its own libm  relative 1e-9
double / 0                          NULL                   inf                     ``nullif``
double to integer, out of range     NULL                   error                   ``TRY_CAST``
text of a double, a time            ``2``, ms if any       ``2.0``, microseconds   cuts, formats
text to number, impossible          NULL                   error                   ``TRY_CAST``
NaN in comparisons                  IEEE                   equal to itself         makes no NaN
NULL in concat, concat_ws           NULL                   left out                ``||``
dayofweek                           Sunday is 1            Sunday is 0             adds 1
upper of ß                          ``SS``                 ``ẞ``                   no such letter
ints in text comparisons            compared as text       as numbers              casts
NULL in a key of LAST JOIN          joins NULL             joins nothing           IS NOT DISTINCT
rows of equal event time            by arrival             peers of each other     ``id`` is arrival
max, min, sum of BOOL               refused                allowed                 leaves them out
array_contains of NULL              finds a NULL           NULL                    CASE
entropy of nothing                  NULL                   0                       CASE
WHERE: LIKE of a CASE without ELSE  NULL is not true       rows too many           turns a rule off
=================================== ====================== ======================= =================
"""
