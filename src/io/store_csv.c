/* The store's rows as a table. */
#include "io/csv.h"
#include "io/file.h"
#include "io/store.h"

static int export_row(void *context, const struct erg_store_row *row, struct erg_error *err)
{
    (void)err;
    struct erg_text *out = context;
    const struct erg_measurement *value = &row->value;
    erg_csv_add(out, row->key.device);
    erg_csv_add(out, row->key.signature);
    erg_csv_add(out, row->work_name);
    erg_csv_add_long(out, row->key.clock_mhz);
    erg_csv_add_long(out, row->key.slot);
    erg_csv_add(out, row->slot_name);
    erg_csv_add_long(out, row->key.sms);
    erg_csv_add(out, row->key.kind == ERG_STORE_FULL ? "full" : "time_only");
    erg_csv_add_long(out, (long)row->key.repeat);
    erg_csv_add_double(out, value->time_s);
    erg_csv_add_double(out, value->energy_j);
    erg_csv_add_double(out, value->time_sd);
    erg_csv_add_double(out, value->energy_sd);
    erg_csv_add_double(out, value->clock_mhz);
    erg_csv_add_double(out, value->temperature_start_c);
    erg_csv_add_double(out, value->temperature_end_c);
    erg_csv_add_double(out, value->window_s);
    erg_csv_add_long(out, (long)value->reasons);
    erg_csv_add(out, row->created_utc);
    erg_csv_end_row(out);
    return 0;
}

int erg_store_export_csv(struct erg_store *store, const char *path, struct erg_error *err)
{
    struct erg_text out = {0};
    erg_text_add(&out, "device,signature,work,clock_mhz,slot,slot_name,sms,kind,repeat,time_s,"
                       "energy_j,time_error,energy_error,clock_effective_mhz,temperature_begin_c,"
                       "temperature_end_c,window_s,reasons,created_utc\n");
    int result = erg_store_each(store, export_row, &out, err);
    if (result == 0)
        result = erg_file_write(path, out.data, out.count, err);
    erg_text_release(&out);
    return result;
}
