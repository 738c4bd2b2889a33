/* Metrics as text: OpenMetrics, the older Prometheus format, and the choice by a client's
 * request. */
#include "observe/openmetrics.h"

#include "ergon/ergon.h"
#include "observe/format.h"
#include "observe/imbalance.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* The exported metrics. A row without a name belongs to the family of the previous row. */
static const struct exported {
    enum erg_metric metric;
    const char *label; /* distinguishes the rows of a family */
    double scale;      /* to the family's unit */
    const char *name, *unit, *help;
} exported[] = {
    {ERG_METRIC_ENERGY, "", 1e-3, "ergon_gpu_energy_joules", "joules",
     "Energy by the GPU's own counter since its driver was loaded."},
    {ERG_METRIC_POWER_INSTANT, "", 1e-3, "ergon_gpu_power_watts", "watts",
     "Instant power; the sensor samples only a part of the time."},
    {ERG_METRIC_POWER_AVERAGE, "", 1e-3, "ergon_gpu_power_average_watts", "watts",
     "Power averaged by the GPU over a second."},
    {ERG_METRIC_MEMORY_POWER, "", 1e-3, "ergon_gpu_memory_power_watts", "watts",
     "Power of the memory; a part of the GPU's power."},
    {ERG_METRIC_POWER_LIMIT, "limit=\"enforced\"", 1e-3, "ergon_gpu_power_limit_watts", "watts",
     "Power limits: enforced, requested, default, lowest and highest."},
    {ERG_METRIC_POWER_LIMIT_REQUESTED, "limit=\"requested\"", 1e-3, NULL, NULL, NULL},
    {ERG_METRIC_POWER_LIMIT_DEFAULT, "limit=\"default\"", 1e-3, NULL, NULL, NULL},
    {ERG_METRIC_POWER_LIMIT_MIN, "limit=\"min\"", 1e-3, NULL, NULL, NULL},
    {ERG_METRIC_POWER_LIMIT_MAX, "limit=\"max\"", 1e-3, NULL, NULL, NULL},
    {ERG_METRIC_TEMPERATURE, "", 1, "ergon_gpu_temperature_celsius", "celsius",
     "Temperature of the GPU."},
    {ERG_METRIC_MEMORY_TEMPERATURE, "", 1, "ergon_gpu_memory_temperature_celsius", "celsius",
     "Temperature of the memory."},
    {ERG_METRIC_MARGIN, "", 1, "ergon_gpu_thermal_margin_celsius", "celsius",
     "Degrees left before the GPU slows down for heat."},
    {ERG_METRIC_SM_CLOCK, "", 1e6, "ergon_gpu_sm_clock_hertz", "hertz", "Clock of the SMs."},
    {ERG_METRIC_MEMORY_CLOCK, "", 1e6, "ergon_gpu_memory_clock_hertz", "hertz",
     "Clock of the memory."},
    {ERG_METRIC_UTILISATION, "", 0.01, "ergon_gpu_utilisation_ratio", "ratio",
     "Share of the time with a kernel running, however small the kernel."},
    {ERG_METRIC_MEMORY_UTILISATION, "", 0.01, "ergon_gpu_memory_utilisation_ratio", "ratio",
     "Share of the time with memory being read or written."},
    {ERG_METRIC_VIOLATION_POWER, "cause=\"power\"", 1e-9, "ergon_gpu_throttled_seconds", "seconds",
     "Time with a throttled clock."},
    {ERG_METRIC_VIOLATION_THERMAL, "cause=\"thermal\"", 1e-9, NULL, NULL, NULL},
    {ERG_METRIC_PCIE_TX, "direction=\"sent\"", 1, "ergon_gpu_pcie_bytes", "bytes",
     "Bytes over PCIe."},
    {ERG_METRIC_PCIE_RX, "direction=\"received\"", 1, NULL, NULL, NULL},
    {ERG_METRIC_NVLINK_TX, "direction=\"sent\"", 1, "ergon_gpu_nvlink_bytes", "bytes",
     "Bytes over all NVLinks."},
    {ERG_METRIC_NVLINK_RX, "direction=\"received\"", 1, NULL, NULL, NULL},
    {ERG_METRIC_ECC_CORRECTED, "kind=\"corrected\"", 1, "ergon_gpu_memory_errors", "",
     "Memory errors since the driver was loaded."},
    {ERG_METRIC_ECC_UNCORRECTED, "kind=\"uncorrected\"", 1, NULL, NULL, NULL},
    {ERG_METRIC_XID, "", 1, "ergon_gpu_xid", "",
     "Number of the latest critical error (XID) since the exporter started; 0: none."},
};
enum { EXPORTED = sizeof exported / sizeof *exported };

void erg_openmetrics_add_family(struct erg_text *out, const char *name, const char *type,
                                const char *unit, const char *help)
{
    erg_text_printf(out, "# TYPE %s %s\n", name, type);
    if (unit[0])
        erg_text_printf(out, "# UNIT %s %s\n", name, unit);
    erg_text_printf(out, "# HELP %s %s\n", name, help);
}

void erg_openmetrics_add_label(struct erg_text *out, const char *name, const char *value)
{
    erg_text_printf(out, "%s=\"", name);
    for (; *value; value++) {
        if (*value == '\n')
            erg_text_add(out, "\\n");
        else
            erg_text_printf(out, "%s%c", *value == '"' || *value == '\\' ? "\\" : "", *value);
    }
    erg_text_add(out, "\"");
}

/* "name{gpu="0",uuid="GPU-…"", without the closing brace. */
static void add_sample(struct erg_text *out, const char *name, const char *suffix,
                       const struct erg_gpu_info *info)
{
    erg_text_printf(out, "%s%s{gpu=\"%d\",", name, suffix, info->index);
    erg_openmetrics_add_label(out, "uuid", info->uuid);
}

/* The family of the rows from `first` on; returns its number of rows. */
static size_t add_family(struct erg_text *out, size_t first, const struct erg_live_view *view)
{
    const char *name = exported[first].name;
    bool counter = erg_metric_info(exported[first].metric)->counter;
    size_t count = 1;
    while (first + count < EXPORTED && !exported[first + count].name)
        count++;
    erg_openmetrics_add_family(out, name, counter ? "counter" : "gauge", exported[first].unit,
                               exported[first].help);
    for (size_t g = 0; g < view->count; g++) {
        const struct erg_live_gpu *gpu = &view->gpus[g];
        for (const struct exported *row = &exported[first]; row < &exported[first + count]; row++) {
            if (!erg_live_has(gpu, row->metric))
                continue;
            add_sample(out, name, counter ? "_total" : "", &gpu->info);
            erg_text_printf(out, "%s%s} %.15g\n", row->label[0] ? "," : "", row->label,
                            row->scale * (double)gpu->values[row->metric]);
        }
    }
    return count;
}

/* Energy since the exporter started; kept while a GPU does not answer. */
static void add_integral(struct erg_text *out, const struct erg_live_view *view)
{
    static const char name[] = "ergon_gpu_power_integral_joules";
    erg_openmetrics_add_family(out, name, "counter", "joules",
                               "Energy as the sum of power readings since the exporter started, in "
                               "addition to the counter.");
    for (size_t g = 0; g < view->count; g++)
        if (view->gpus[g].answers && !isnan(view->gpus[g].power_energy_j)) {
            add_sample(out, name, "_total", &view->gpus[g].info);
            erg_text_printf(out, "} %.15g\n", view->gpus[g].power_energy_j);
        }
}

static void add_reasons(struct erg_text *out, const struct erg_live_view *view)
{
    static const char name[] = "ergon_gpu_clock_reasons";
    erg_openmetrics_add_family(out, name, "stateset", "",
                               "Why the clock is lower than it could be.");
    for (size_t g = 0; g < view->count; g++) {
        const struct erg_live_gpu *gpu = &view->gpus[g];
        if (!erg_live_has(gpu, ERG_METRIC_REASONS))
            continue;
        for (const struct erg_reason_name *reason = erg_reason_names; reason->name; reason++) {
            add_sample(out, name, "", &gpu->info);
            erg_text_printf(out, ",%s=\"%s\"} %d\n", name, reason->name,
                            (gpu->values[ERG_METRIC_REASONS] & reason->bit) != 0);
        }
    }
}

static void add_imbalance(struct erg_text *out, const struct erg_live_view *view)
{
    static const char name[] = "ergon_gpu_imbalance_ratio";
    double ratios[ERG_IMBALANCES];
    erg_openmetrics_add_family(out, name, "gauge", "ratio",
                               "Largest value of a GPU over the mean of all, temperatures in C.");
    erg_imbalance_now(view, ratios);
    for (int i = 0; i < ERG_IMBALANCES; i++)
        if (!isnan(ratios[i]))
            erg_text_printf(out, "%s{of=\"%s\"} %.15g\n", name, erg_imbalance_names[i], ratios[i]);
}

void erg_openmetrics_add_build(struct erg_text *out)
{
    erg_openmetrics_add_family(out, "ergon_build", "info", "", "Version of the exporter.");
    erg_text_printf(out, "ergon_build_info{version=\"%s\"} 1\n", ERG_VERSION);
}

static void add_descriptions(struct erg_text *out, const struct erg_live_view *view)
{
    erg_openmetrics_add_build(out);
    erg_openmetrics_add_family(out, "ergon_gpu", "info", "", "Names and versions of the GPUs.");
    for (size_t g = 0; g < view->count; g++) {
        const struct erg_gpu_info *info = &view->gpus[g].info;
        const char *const labels[][2] = {{"vendor", info->vendor},
                                         {"name", info->name},
                                         {"pci", info->pci},
                                         {"driver", info->driver}};
        add_sample(out, "ergon_gpu", "_info", info);
        for (size_t i = 0; i < sizeof labels / sizeof *labels; i++) {
            erg_text_add(out, ",");
            erg_openmetrics_add_label(out, labels[i][0], labels[i][1]);
        }
        erg_text_add(out, "} 1\n");
    }
    erg_openmetrics_add_family(out, "ergon_gpu_up", "gauge", "",
                               "1 while the GPU answers, 0 while it hangs or after it fell off the "
                               "bus; its other values are then missing.");
    for (size_t g = 0; g < view->count; g++) {
        add_sample(out, "ergon_gpu_up", "", &view->gpus[g].info);
        erg_text_printf(out, "} %d\n", view->gpus[g].answers);
    }
}

static void add_cpu(struct erg_text *out, const struct erg_rapl_reading *cpu)
{
    if (cpu && cpu->cpu_valid) {
        erg_openmetrics_add_family(out, "ergon_cpu_energy_joules", "counter", "joules",
                                   "Energy of all CPU packages since the exporter started.");
        erg_text_printf(out, "ergon_cpu_energy_joules_total %.15g\n", cpu->cpu_j);
    }
    if (cpu && cpu->dram_valid) {
        erg_openmetrics_add_family(
            out, "ergon_dram_energy_joules", "counter", "joules",
            "Energy of the memory of all CPU packages since the exporter started.");
        erg_text_printf(out, "ergon_dram_energy_joules_total %.15g\n", cpu->dram_j);
    }
}

void erg_openmetrics_text(struct erg_text *out, const struct erg_live_view *view,
                          const struct erg_rapl_reading *cpu)
{
    add_descriptions(out, view);
    for (size_t i = 0; i < EXPORTED;)
        i += add_family(out, i, view);
    add_integral(out, view);
    add_reasons(out, view);
    add_imbalance(out, view);
    add_cpu(out, cpu);
    erg_text_add(out, "# EOF\n");
}

/* ---- the older format ---- */

/* The line of a family, "# TYPE name type" or "# HELP name text"; `type` is that of the family. */
static void add_older_heading(struct erg_text *out, const char *line, size_t count,
                              const char *type)
{
    size_t name = 7 + strcspn(line + 7, " ");
    bool is_type = strncmp(line, "# TYPE ", 7) == 0;
    const char *suffix = *type == 'c' ? "_total" : *type == 'i' ? "_info" : "";
    erg_text_printf(out, "%.*s%s ", (int)name, line, suffix);
    if (is_type)
        erg_text_add(out, *type == 'c' ? "counter" : "gauge");
    else
        erg_text_add_bytes(out, line + name + 1, count - name - 1);
    erg_text_add(out, "\n");
}

void erg_openmetrics_add_older(struct erg_text *out, const char *text)
{
    const char *type = "";
    for (const char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        size_t count = (size_t)(end - line);
        if (strncmp(line, "# TYPE ", 7) == 0)
            type = line + 7 + strcspn(line + 7, " ") + 1;
        if (*line != '#')
            erg_text_add_bytes(out, line, count + 1);
        else if (strncmp(line, "# TYPE ", 7) == 0 || strncmp(line, "# HELP ", 7) == 0)
            add_older_heading(out, line, count, type);
    }
}

void erg_prometheus_text(struct erg_text *out, const struct erg_live_view *view,
                         const struct erg_rapl_reading *cpu)
{
    struct erg_text text = {0};
    erg_openmetrics_text(&text, view, cpu);
    erg_openmetrics_add_older(out, text.data);
    erg_text_release(&text);
}

/* ---- the formats that a client accepts ---- */

/* The part up to one of the stops, without blanks around it; moves *at to the stop. */
static struct erg_text take_part(const char **at, const char *stops)
{
    struct erg_text part = {0};
    *at += strspn(*at, " \t");
    size_t count = strcspn(*at, stops), used = count;
    while (used > 0 && (*at)[used - 1] && strchr(" \t", (*at)[used - 1]))
        used--;
    erg_text_add_bytes(&part, *at, used);
    *at += count;
    return part;
}

/* Reads the parameters of a media range. Returns its weight; 0 if it requires another version. */
static double take_weight(const char **at, const char *version)
{
    double weight = 1;
    while (**at == ';') {
        ++*at;
        struct erg_text parameter = take_part(at, ";,");
        if (strncasecmp(parameter.data, "q=", 2) == 0 &&
            (!erg_parse_double(parameter.data + 2, &weight) || !(weight >= 0 && weight <= 1)))
            weight = 0;
        if (strncasecmp(parameter.data, "version=", 8) == 0) {
            const char *given = parameter.data + 8;
            size_t quote = *given == '"', length = strlen(version);
            if (strncmp(given + quote, version, length) != 0 || strlen(given) != length + 2 * quote)
                version = "";
        }
        erg_text_release(&parameter);
    }
    return *version ? weight : 0;
}

bool erg_openmetrics_accepted(const char *accept)
{
    /* The most specific range that matches a type decides. */
    double open_weight = 0, plain_weight = 0;
    int plain_exact = 0;
    for (const char *at = accept ? accept : ""; *at; at += *at == ',') {
        struct erg_text type = take_part(&at, ";,");
        bool is_open = strcasecmp(type.data, "application/openmetrics-text") == 0;
        int exact = strcasecmp(type.data, "text/plain") == 0 ? 3
                    : strcasecmp(type.data, "text/*") == 0   ? 2
                    : strcmp(type.data, "*/*") == 0          ? 1
                                                             : 0;
        double weight = take_weight(&at, is_open ? "1.0.0" : "0.0.4");
        if (is_open && weight > open_weight)
            open_weight = weight;
        if (exact && (exact > plain_exact || (exact == plain_exact && weight > plain_weight))) {
            plain_weight = weight;
            plain_exact = exact;
        }
        erg_text_release(&type);
    }
    return open_weight > 0 && open_weight >= plain_weight;
}
