/* The live state as a plain table and as JSON. */
#include "observe/live.h"

#include "base/table.h"
#include "io/json.h"
#include "observe/format.h"
#include "observe/imbalance.h"

#include <math.h>

static void add_value(struct erg_table *table, double value, const char *unit)
{
    if (isnan(value))
        erg_table_add(table, "-");
    else
        erg_table_add(table, "%.0f %s", value, unit);
}

static void add_gpu(struct erg_table *table, const struct erg_live_gpu *gpu)
{
    struct erg_text words = {0};
    erg_text_add(&words, erg_live_trouble(gpu));
    if (gpu->answers)
        erg_format_reasons(&words, gpu->reasons_recent);
    erg_table_add(table, "%d %s", gpu->info.index, gpu->info.name);
    add_value(table, erg_live_power_w(gpu), "W");
    add_value(table, erg_live_value(gpu, ERG_METRIC_POWER_LIMIT, 1e-3), "W");
    add_value(table, erg_live_value(gpu, ERG_METRIC_UTILISATION, 1), "%");
    add_value(table, erg_live_value(gpu, ERG_METRIC_SM_CLOCK, 1), "MHz");
    add_value(table, erg_live_value(gpu, ERG_METRIC_MEMORY_CLOCK, 1), "MHz");
    add_value(table, erg_live_value(gpu, ERG_METRIC_TEMPERATURE, 1), "°C");
    add_value(table, erg_live_value(gpu, ERG_METRIC_MEMORY_TEMPERATURE, 1), "°C");
    erg_table_add(table, "%s", words.data);
    erg_text_release(&words);
}

void erg_live_table(struct erg_text *out, const struct erg_live_view *view)
{
    static const char *const headings[] = {"GPU",          "power", "cap",    "busy",   "SM clock",
                                           "memory clock", "heat",  "memory", "held by"};
    struct erg_table table = {.columns = sizeof headings / sizeof *headings};
    for (size_t c = 0; c < table.columns; c++)
        erg_table_add(&table, "%s", headings[c]);
    for (size_t g = 0; g < view->count; g++)
        add_gpu(&table, &view->gpus[g]);
    erg_table_text(out, &table, "");
    erg_table_release(&table);
    if (view->count < 2)
        return;
    double ratios[ERG_IMBALANCES];
    erg_imbalance_now(view, ratios);
    erg_text_add(out, "largest over mean of the GPUs: ");
    erg_imbalance_text(out, ratios);
    erg_text_add(out, "\n");
}

static json_t *gpu_json(const struct erg_live_gpu *gpu)
{
    const struct erg_gpu_info *info = &gpu->info;
    json_t *object =
        erg_json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:b, s:b}", "index", info->index, "vendor",
                      info->vendor, "name", info->name, "uuid", info->uuid, "pci", info->pci,
                      "driver", info->driver, "answers", gpu->answers, "lost", gpu->lost);
    json_t *reasons = json_array(), *rates = json_object();
    for (enum erg_metric m = 0; m < ERG_METRICS; m++)
        if (m != ERG_METRIC_REASONS) /* in words below */
            json_object_set_new(object, erg_metric_info(m)->name,
                                erg_live_has(gpu, m) ? json_integer(gpu->values[m]) : json_null());
    for (const struct erg_reason_name *reason = erg_reason_names; reason->name; reason++)
        if (erg_live_has(gpu, ERG_METRIC_REASONS) && gpu->reasons_recent & reason->bit)
            json_array_append_new(reasons, erg_json_new_string(reason->name));
    json_object_set_new(object, "reasons", reasons);
    static const struct {
        enum erg_metric metric;
        const char *key;
    } links[] = {{ERG_METRIC_PCIE_TX, "pcie_tx_bytes_per_s"},
                 {ERG_METRIC_PCIE_RX, "pcie_rx_bytes_per_s"},
                 {ERG_METRIC_NVLINK_TX, "nvlink_tx_bytes_per_s"},
                 {ERG_METRIC_NVLINK_RX, "nvlink_rx_bytes_per_s"}};
    for (size_t i = 0; i < sizeof links / sizeof *links; i++)
        json_object_set_new(rates, links[i].key, erg_json_number(gpu->rates[links[i].metric]));
    json_object_set_new(object, "rates", rates);
    return object;
}

json_t *erg_live_json(const struct erg_live_view *view)
{
    json_t *gpus = json_array(), *imbalance = json_object();
    double ratios[ERG_IMBALANCES];
    for (size_t g = 0; g < view->count; g++)
        json_array_append_new(gpus, gpu_json(&view->gpus[g]));
    erg_imbalance_now(view, ratios);
    for (int i = 0; i < ERG_IMBALANCES; i++)
        json_object_set_new(imbalance, erg_imbalance_names[i], erg_json_number(ratios[i]));
    return erg_json_pack("{s:i, s:f, s:o, s:o}", "schema_version", 1, "watched_s", view->seconds,
                         "imbalance", imbalance, "gpus", gpus);
}
