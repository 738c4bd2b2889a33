/* Names in a job file: of a catalogue's entry, or a path from the file's folder. */
#include "job/job_internal.h"

#include "base/memory.h"
#include "base/text.h"

#include <string.h>

bool erg_job_is_path(const char *name)
{
    const char *dot = strrchr(name, '.');
    return strchr(name, '/') || (dot && (!strcmp(dot, ".yaml") || !strcmp(dot, ".json")));
}

char *erg_job_relative_to(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    if (*name == '/' || !erg_job_is_path(name) || !slash)
        return erg_xstrdup(name);
    struct erg_text text = {0};
    erg_text_add_bytes(&text, path, (size_t)(slash - path) + 1);
    erg_text_add(&text, name);
    return text.data;
}
