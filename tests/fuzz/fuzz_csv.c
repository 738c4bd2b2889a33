/* libFuzzer: any bytes as CSV. What is accepted, written and read again must stay the same. */
#include "io/csv.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static size_t columns_of(const struct erg_csv *csv)
{
    size_t columns = 0;
    while (erg_csv_header(csv, columns))
        columns++;
    return columns;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct erg_error err;
    struct erg_csv *csv, *again;
    if (erg_csv_parse(&csv, "fuzz.csv", (const char *)data, size, &err) != 0)
        return 0;
    struct erg_text out = {0};
    size_t columns = columns_of(csv), rows = erg_csv_rows(csv);
    for (size_t j = 0; j < columns; j++)
        erg_csv_add(&out, erg_csv_header(csv, j));
    erg_csv_end_row(&out);
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < columns; j++)
            erg_csv_add(&out, erg_csv_text(csv, i, j));
        erg_csv_end_row(&out);
    }
    if (erg_csv_parse(&again, "again.csv", out.data, out.count, &err) != 0 ||
        erg_csv_rows(again) != rows || columns_of(again) != columns)
        abort();
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < columns; j++) {
            double value;
            if (strcmp(erg_csv_text(csv, i, j), erg_csv_text(again, i, j)) != 0)
                abort();
            (void)erg_csv_double(csv, i, j, &value, &err);
        }
    }
    erg_csv_free(csv);
    erg_csv_free(again);
    erg_text_release(&out);
    return 0;
}
