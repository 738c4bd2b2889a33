/* Names in a job file: of a catalogue's entry, or a path from the file's folder. */
#include "job/job_internal.h"

#include "base/memory.h"
#include "base/text.h"

#include <string.h>

static bool is_relative_path(const char *name)
{
    const char *dot = strrchr(name, '.');
    bool file = dot && (!strcmp(dot, ".yaml") || !strcmp(dot, ".json"));
    return *name != '/' && (strchr(name, '/') || file);
}

char *erg_job_relative_to(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    if (!is_relative_path(name) || !slash)
        return erg_xstrdup(name);
    struct erg_text text = {0};
    erg_text_add_bytes(&text, path, (size_t)(slash - path) + 1);
    erg_text_add(&text, name);
    return text.data;
}
