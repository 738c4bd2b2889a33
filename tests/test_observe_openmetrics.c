/* The text of /metrics, read by a strict reader. */
#include "openmetrics.h"

#include "observe/openmetrics.h"
#include "observed.h"

static const int64_t start = 5000000000;

static void check_part(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("expected \"%s\" in\n%s", part, text);
}

static void test_values_with_units(void **state)
{
    (void)state;
    struct erg_open_gpu items[3] = {0};
    struct erg_gpus gpus = observed_gpus(items, 3);
    snprintf(items[1].info.name, sizeof items[1].info.name, "odd \"name\\\n");
    struct erg_sampler_options options = observed_options();
    struct erg_live *live = erg_live_new(&gpus, &options, 1000000000, start);
    struct erg_live_view view = {0};
    for (size_t g = 0; g < 2; g++) {
        struct erg_sampler_item item = observed_sample(g, start);
        for (int m = 0; m < ERG_METRICS; m++)
            observe_value(&item, m, 1000 + m);
        observe_value(&item, ERG_METRIC_ENERGY, 123456789012);
        observe_value(&item, ERG_METRIC_POWER_INSTANT, 623500);
        observe_value(&item, ERG_METRIC_SM_CLOCK, 1980);
        observe_value(&item, ERG_METRIC_UTILISATION, 97);
        observe_value(&item, ERG_METRIC_PCIE_RX, INT64_C(9007199254740993) / 1024);
        observe_value(&item, ERG_METRIC_VIOLATION_POWER, 1500000000);
        observe_value(&item, ERG_METRIC_REASONS, ERG_REASON_SW_POWER_CAP);
        erg_live_put(live, &item);
    }
    erg_live_look(live, start + 1000000, &view);
    struct erg_text text = {0};
    struct erg_rapl_reading cpu = {.cpu_j = 12.5, .cpu_valid = true};
    erg_openmetrics_text(&text, &view, &cpu);
    /* Three GPUs are described and up or not; of two there are 24 numbers, one sum and 9 reasons;
     * and three ratios over both. */
    assert_int_equal(openmetrics_check(text.data), 1 + 2 * 3 + 2 * (25 + 1 + 9) + 3 + 1);
    static const char *const parts[] = {
        "ergon_gpu_info{gpu=\"1\",uuid=\"GPU-00000001\",vendor=\"NVIDIA\","
        "name=\"odd \\\"name\\\\\\n\",pci=\"00000000:11:00.0\",driver=\"580.65.06\"} 1\n",
        "ergon_gpu_up{gpu=\"0\",uuid=\"GPU-00000000\"} 1\n",
        "ergon_gpu_up{gpu=\"2\",uuid=\"GPU-00000002\"} 0\n",
        "# TYPE ergon_gpu_energy_joules counter\n# UNIT ergon_gpu_energy_joules joules\n",
        "ergon_gpu_energy_joules_total{gpu=\"0\",uuid=\"GPU-00000000\"} 123456789.012\n",
        "ergon_gpu_power_watts{gpu=\"1\",uuid=\"GPU-00000001\"} 623.5\n",
        "ergon_gpu_sm_clock_hertz{gpu=\"0\",uuid=\"GPU-00000000\"} 1980000000\n",
        "ergon_gpu_utilisation_ratio{gpu=\"0\",uuid=\"GPU-00000000\"} 0.97\n",
        "ergon_gpu_pcie_bytes_total{gpu=\"0\",uuid=\"GPU-00000000\",direction=\"received\"} "
        "8796093022208\n",
        "ergon_gpu_throttled_seconds_total{gpu=\"0\",uuid=\"GPU-00000000\",cause=\"power\"} 1.5\n",
        "ergon_gpu_clock_reasons{gpu=\"0\",uuid=\"GPU-00000000\","
        "ergon_gpu_clock_reasons=\"sw_power_cap\"} 1\n",
        "ergon_gpu_clock_reasons=\"idle\"} 0\n",
        "# TYPE ergon_gpu_imbalance_ratio gauge\n# UNIT ergon_gpu_imbalance_ratio ratio\n",
        "ergon_gpu_imbalance_ratio{of=\"power\"} 1\n",
        "ergon_cpu_energy_joules_total 12.5\n",
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        check_part(text.data, parts[i]);
    assert_null(strstr(text.data, "dram"));
    erg_text_release(&text);

    /* The older format has counters and gauges only, under the names of their samples. */
    erg_prometheus_text(&text, &view, &cpu);
    static const char *const older[] = {
        "# TYPE ergon_build_info gauge\n",
        "# TYPE ergon_gpu_info gauge\n",
        "# HELP ergon_gpu_info Names and versions of the GPUs.\nergon_gpu_info{gpu=\"0\"",
        "# TYPE ergon_gpu_energy_joules_total counter\n# HELP ergon_gpu_energy_joules_total Energy",
        "# TYPE ergon_gpu_power_watts gauge\n",
        "# TYPE ergon_gpu_clock_reasons gauge\n",
        "ergon_gpu_clock_reasons=\"sw_power_cap\"} 1\n",
        "ergon_gpu_energy_joules_total{gpu=\"0\",uuid=\"GPU-00000000\"} 123456789.012\n",
        "ergon_cpu_energy_joules_total 12.5\n",
    };
    for (size_t i = 0; i < sizeof older / sizeof *older; i++)
        check_part(text.data, older[i]);
    static const char *const newer[] = {"# UNIT", "# EOF", " info\n", " stateset\n"};
    for (size_t i = 0; i < sizeof newer / sizeof *newer; i++)
        assert_null(strstr(text.data, newer[i]));
    erg_text_release(&text);

    /* 10 s later nothing is fresh: the descriptions and "down" remain. */
    erg_live_look(live, start + 10000000000, &view);
    erg_openmetrics_text(&text, &view, NULL);
    assert_int_equal(openmetrics_check(text.data), 1 + 2 * 3);
    check_part(text.data, "ergon_gpu_up{gpu=\"0\",uuid=\"GPU-00000000\"} 0\n");
    erg_text_release(&text);
    erg_live_view_release(&view);
    erg_live_free(live);
}

static void clients_get_an_accepted_format(void **state)
{
    (void)state;
    static const struct {
        const char *accept;
        bool open;
    } cases[] = {
        {NULL, false},
        {"", false},
        {"*/*", false},
        {"text/plain", false},
        {"text/plain;version=0.0.4", false},
        {"application/openmetrics-text", true},
        {"Application/OpenMetrics-Text ; Version=1.0.0", true},
        {"application/openmetrics-text; version=\"1.0.0\"", true},
        {"application/openmetrics-text;version=2.0.0", false},
        {"application/openmetrics-text;q=0", false},
        {"application/openmetrics-text;q=x", false},
        {"application/openmetrics-textual", false},
        {"text/plain;q=0.5, application/openmetrics-text;q=0.4", false},
        {"text/plain;q=0.4, application/openmetrics-text;q=0.5", true},
        {"application/openmetrics-text;q=0.5, */*", false},
        {"application/openmetrics-text;q=0.5, text/plain;q=0.1, */*", true},
        /* As Prometheus 2 and 3 send it. */
        {"application/openmetrics-text;version=1.0.0;q=0.8,application/openmetrics-text;"
         "version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
         true},
        {"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/"
         "openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
         "text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
         true},
        {",,;;q=,", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (erg_openmetrics_accepted(cases[i].accept) != cases[i].open)
            fail_msg("Accept: %s", cases[i].accept ? cases[i].accept : "(none)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clients_get_an_accepted_format),
        cmocka_unit_test(test_values_with_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
