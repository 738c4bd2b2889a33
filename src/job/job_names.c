/* Names in a job file: of a catalogue's entry, or a path from the file's folder. */
#include "job/job_internal.h"

#include "base/text.h"

#include <string.h>
#include <unistd.h>

bool erg_job_is_path(const char *name)
{
    const char *dot = strrchr(name, '.');
    return strchr(name, '/') || (dot && (!strcmp(dot, ".yaml") || !strcmp(dot, ".json")));
}

/* The folder of the file at `path` with a slash at its end; of a bare name the one given. */
static void add_folder(struct erg_text *text, const char *path, const char *here)
{
    const char *slash = strrchr(path, '/');
    if (slash)
        erg_text_add_bytes(text, path, (size_t)(slash - path) + 1);
    else
        erg_text_add(text, here);
}

char *erg_job_relative_to(const char *path, const char *name)
{
    struct erg_text text = {0};
    if (*name != '/' && erg_job_is_path(name))
        add_folder(&text, path, "");
    erg_text_add(&text, name);
    return text.data;
}

char *erg_job_file_path(const struct erg_job *job, const char *name)
{
    struct erg_text text = {0};
    if (*name != '/')
        add_folder(&text, job->path, "");
    erg_text_add(&text, name);
    return text.data;
}

char *erg_job_model_path(const char *path, const char *name)
{
    struct erg_text folder = {0}, config = {0};
    add_folder(&folder, path, "./");
    erg_text_add(&folder, name);
    erg_text_printf(&config, "%s/config.json", folder.data);
    bool beside = !erg_job_is_path(name) && access(config.data, F_OK) == 0;
    erg_text_release(&config);
    if (beside)
        return folder.data;
    erg_text_release(&folder);
    return erg_job_relative_to(path, name);
}
