/* The rules of the daemon: any bytes are refused, or give limits in order and times above zero. */
#include "as_file.h"

#include "daemon/daemon_rules.h"
#include "telemetry/gpu_internal.h"

#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct erg_daemon_config config = {0};
    struct erg_open_gpu items[] = {{.info.uuid = "GPU-0"}, {.info.uuid = "GPU-1"}};
    const struct erg_gpus gpus = {.items = items, .count = 2, .opened = 2};
    struct erg_error err;
    const char *path = as_file(data, size);
    if (chmod(path, 0600) != 0) /* rules that others can write to are refused */
        abort();
    if (erg_daemon_config_load(&config, path, &gpus, &err) != 0)
        return 0;
    if (config.period_ns <= 0 || config.ttl_ns <= 0 || config.longest_ns < config.ttl_ns ||
        !(config.changes_per_s > 0) || config.burst < 1)
        abort();
    for (size_t i = 0; i < config.rule_count; i++)
        for (int knob = 0; knob < ERG_KNOBS; knob++)
            if (config.rules[i].least[knob] > config.rules[i].most[knob])
                abort();
    erg_daemon_config_release(&config);
    return 0;
}
