/* Lists of GPUs as bits. */
#include "telemetry/gpu_bits.h"

#include "base/memory.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

static int add(const char *word, size_t count, const struct erg_gpus *gpus, uint64_t *bits,
               struct erg_error *err)
{
    size_t length = strlen(word), found = 0;
    long index;
    if (erg_parse_long(word, &index)) {
        if (index < 0 || (size_t)index >= count)
            return erg_fail(err, ERG_FAILED, "there is no GPU %ld, expected 0 to %zu", index,
                            count - 1);
        *bits |= UINT64_C(1) << index;
        return 0;
    }
    for (size_t i = 0; gpus && i < count; i++) {
        bool fits = length >= 5 && strncmp(erg_gpus_info(gpus, i)->uuid, word, length) == 0;
        *bits |= (uint64_t)fits << i;
        found += fits;
    }
    if (found == 1)
        return 0;
    return gpus ? erg_fail(err, ERG_FAILED,
                           "'%s' fits %zu GPUs, expected \"all\", or indices and unique beginnings "
                           "of UUIDs with commas",
                           word, found)
                : erg_fail(err, ERG_FAILED, "'%s': expected \"all\", or indices with commas", word);
}

int erg_gpu_bits(const char *list, size_t count, const struct erg_gpus *gpus, uint64_t *bits,
                 struct erg_error *err)
{
    char *copy = erg_xstrdup(list), *rest = copy, *word;
    int result = 0;
    *bits = 0;
    if (strcmp(list, "all") == 0)
        *bits = count < 64 ? (UINT64_C(1) << count) - 1 : UINT64_MAX;
    else
        while (result == 0 && (word = strtok_r(rest, ", ", &rest)) != NULL)
            result = add(word, count, gpus, bits, err);
    free(copy);
    return result;
}
