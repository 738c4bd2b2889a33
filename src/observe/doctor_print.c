/* The findings of doctor, as lines and as JSON. */
#include "observe/doctor_print.h"

#include "io/json.h"
#include "io/print.h"
#include "observe/format.h"

#include <stdlib.h>

/* ---- for programs ---- */

static json_t *metrics_json(const struct erg_doctor_gpu *gpu)
{
    json_t *metrics = json_object();
    for (enum erg_metric m = 0; m < ERG_METRICS; m++) {
        const struct erg_doctor_metric *metric = &gpu->metrics[m];
        json_object_set_new(metrics, erg_metric_info(m)->name,
                            erg_json_pack("{s:o, s:s?, s:s?, s:o}", "value",
                                          metric->valid ? json_integer(metric->value) : json_null(),
                                          "source", metric->source, "missing_because",
                                          metric->valid ? NULL : metric->refusal, "latency_s",
                                          erg_json_number(metric->latency_s)));
    }
    return metrics;
}

static json_t *traits_json(const struct erg_sensor_traits *traits)
{
    return erg_json_pack("{s:o, s:o, s:o}", "period_s",
                         traits->period_s > 0 ? erg_json_number(traits->period_s) : json_null(),
                         "jitter_s",
                         traits->period_s > 0 ? erg_json_number(traits->jitter_s) : json_null(),
                         "latency_s", erg_json_number(traits->latency_s));
}

static json_t *gpu_json(const struct erg_doctor_gpu *gpu)
{
    const struct erg_gpu_info *info = &gpu->info;
    json_t *object =
        erg_json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:b, s:b}", "index", info->index, "vendor",
                      info->vendor, "name", info->name, "uuid", info->uuid, "pci", info->pci,
                      "driver", info->driver, "answers", gpu->answers, "lost", gpu->lost);
    if (!gpu->answers)
        return object;
    json_object_set_new(object, "energy_counter", traits_json(&gpu->counter));
    json_object_set_new(object, "power_reading", traits_json(&gpu->power));
    json_object_set_new(object, "sm_clock_min_mhz",
                        gpu->clocks ? json_integer(gpu->clock_least_mhz) : json_null());
    json_object_set_new(object, "sm_clock_max_mhz",
                        gpu->clocks ? json_integer(gpu->clock_most_mhz) : json_null());
    json_object_set_new(object, "power_to_counter_ratio", erg_json_number(gpu->ratio));
    json_object_set_new(object, "metrics", metrics_json(gpu));
    return object;
}

void erg_doctor_print_json(FILE *out, const struct erg_doctor *doctor)
{
    json_t *findings = json_array(), *gpus = json_array();
    for (size_t i = 0; i < doctor->count; i++) {
        const struct erg_finding *finding = &doctor->items[i];
        json_array_append_new(
            findings,
            erg_json_pack("{s:s, s:o, s:s, s:s, s:s?}", "state",
                          erg_finding_state_name(finding->state), "gpu",
                          finding->gpu < 0 ? json_null() : json_integer(finding->gpu), "subject",
                          finding->subject, "fact", finding->fact, "advice", finding->advice));
    }
    for (size_t g = 0; g < doctor->gpu_count; g++)
        json_array_append_new(gpus, gpu_json(&doctor->gpus[g]));
    json_t *document = erg_json_pack("{s:i, s:s, s:o, s:o}", "schema_version", 1, "ergon_version",
                                     ERGON_VERSION, "findings", findings, "gpus", gpus);
    erg_print_json(out, document);
}

/* ---- for people ---- */

static void add_finding(struct erg_text *out, const struct erg_finding *finding)
{
    char subject[64];
    if (finding->gpu >= 0)
        snprintf(subject, sizeof subject, "GPU %d%s%s", finding->gpu,
                 finding->subject[0] == 'G' ? "" : " ",
                 finding->subject[0] == 'G' ? "" : finding->subject);
    else
        snprintf(subject, sizeof subject, "%s", finding->subject);
    erg_text_printf(out, "%-8s ", erg_finding_state_name(finding->state));
    erg_text_add_padded(out, subject, 17, false);
    erg_text_printf(out, " %s\n", finding->fact);
    if (finding->advice)
        erg_text_printf(out, "%27s-> %s\n", "", finding->advice);
}

static void add_metric(struct erg_text *out, enum erg_metric m,
                       const struct erg_doctor_metric *metric)
{
    erg_text_printf(out, "%-8s ", metric->valid ? "ok" : "missing");
    erg_text_add_padded(out, erg_metric_info(m)->what, 30, false);
    if (metric->valid) {
        struct erg_text value = {0};
        erg_doctor_value(&value, m, metric->value);
        erg_text_add_padded(out, value.data, 12, true);
        erg_text_printf(out, "  %8.1f µs  %s\n", 1e6 * metric->latency_s,
                        metric->source ? metric->source : "");
        erg_text_release(&value);
    } else {
        erg_text_printf(out, "  %s\n", metric->refusal ? metric->refusal : "not read");
    }
}

void erg_doctor_print(FILE *out, const struct erg_doctor *doctor)
{
    struct erg_text text = {0};
    for (size_t i = 0; i < doctor->count; i++)
        add_finding(&text, &doctor->items[i]);
    for (size_t g = 0; g < doctor->gpu_count; g++) {
        const struct erg_doctor_gpu *gpu = &doctor->gpus[g];
        if (!gpu->answers || gpu->lost)
            continue;
        erg_text_printf(&text, "\nGPU %d, every metric: value, time of one read, source\n",
                        gpu->info.index);
        for (enum erg_metric m = 0; m < ERG_METRICS; m++)
            add_metric(&text, m, &gpu->metrics[m]);
    }
    fputs(text.data, out);
    erg_text_release(&text);
}
