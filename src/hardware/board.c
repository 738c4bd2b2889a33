/* Which GPU of the catalogue a driver names. */
#include "hardware/hardware.h"

#include "io/file.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

static const char separators[] = " -_/";

/* The next word at or after *at, which is moved behind it; 0 at the end. */
static size_t next_word(const char **at, const char **word)
{
    *word = *at + strspn(*at, separators);
    size_t length = strcspn(*word, separators);
    *at = *word + length;
    return length;
}

static bool has_word(const char *name, const char *wanted, size_t wanted_length)
{
    const char *word;
    size_t length;
    while ((length = next_word(&name, &word)) > 0)
        if (length == wanted_length && !strncasecmp(word, wanted, length))
            return true;
    return false;
}

static bool has_digit(const char *word, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (isdigit((unsigned char)word[i]))
            return true;
    return false;
}

bool erg_gpu_is_board(const struct erg_gpu *gpu, const char *board)
{
    /* Boards of other power with the same chip have a suffix where the usual one has none. */
    static const char *const slower[] = {"PCIe", "NVL"};
    for (size_t i = 0; i < sizeof slower / sizeof *slower; i++)
        if (has_word(board, slower[i], strlen(slower[i])) &&
            !has_word(gpu->name, slower[i], strlen(slower[i])))
            return false;
    const char *name = gpu->name, *word;
    size_t length;
    bool any = false;
    while ((length = next_word(&name, &word)) > 0)
        if (has_digit(word, length)) {
            if (!has_word(board, word, length))
                return false;
            any = true;
        }
    return any;
}

/* How many words of `entry` the name has; 0 without the first one. */
static int shared_words(const char *entry, const char *name)
{
    const char *word;
    size_t length;
    int shared = 0;
    while ((length = next_word(&entry, &word)) > 0) {
        bool has = has_word(name, word, length);
        if (!has && shared == 0)
            return 0;
        shared += has;
    }
    return shared;
}

const char *erg_gpu_catalogue_name(const char *driver_name, struct erg_arena *arena)
{
    const char *const *names = erg_data_names("gpus", arena), *best = NULL;
    int most = 0;
    for (size_t i = 0; names[i]; i++) {
        int shared = shared_words(names[i], driver_name);
        if (shared > most) {
            most = shared;
            best = names[i];
        }
    }
    return best;
}

bool erg_gpu_is_device(const struct erg_gpu *gpu, const char *device)
{
    for (unsigned i = 0; i < gpu->driver_names_count; i++)
        if (strcasecmp(gpu->driver_names[i], device) == 0)
            return true;
    return strcasecmp(device, "host") != 0 && erg_gpu_is_board(gpu, device);
}
