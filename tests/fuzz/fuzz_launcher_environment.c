/* Variables of launchers: lines NAME=VALUE are read as a rank, or refused. */
#define _DEFAULT_SOURCE /* clearenv */
#include "base/memory.h"
#include "launch/launch.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct erg_launch_environment env;
    struct erg_error err = {0};
    char *text = erg_xmalloc(size + 1), *rest = text, *line;
    memcpy(text, data, size);
    text[size] = '\0';
    clearenv();
    while ((line = strtok_r(rest, "\n", &rest)) != NULL) {
        char *equals = strchr(line, '=');
        if (equals && equals != line) {
            *equals = '\0';
            setenv(line, equals + 1, 1);
        }
    }
    if (erg_launch_environment_read(&env, &err) == 0 &&
        (env.world < 1 || env.rank < 0 || env.rank >= env.world || env.local_rank < 0 ||
         (env.world > 1 && (env.port < 1 || env.port > 65535 || !env.host[0]))))
        abort();
    if (erg_launch_own_rank() < 0)
        abort();
    free(text);
    return 0;
}
