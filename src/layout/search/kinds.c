/* Kinds of GPUs as a search sees them. */
#include "layout/memory/stage_memory.h"
#include "layout/search/mixed.h"

int erg_mixed_kind_init(struct erg_mixed_kind *kind, const struct erg_cluster *nodes,
                        const struct erg_gpu *gpu, const struct erg_engine *engine,
                        struct erg_error *err)
{
    if (!engine)
        return erg_fail(err, ERG_USAGE,
                        "the cluster does not say what trains on its nodes with %s; expected the "
                        "key 'engine' beside it (data/engines)",
                        nodes->gpu);
    if (erg_engine_check_gpu(engine, gpu, err) != 0)
        return -1;
    *kind = (struct erg_mixed_kind){
        .name = gpu->name,
        .gpu = gpu,
        .engine = engine,
        .gpus = erg_cluster_gpus(nodes),
        .memory_bytes = ERG_MEMORY_USABLE_SHARE * gpu->memory_bytes,
        .host_bytes = nodes->host_memory_bytes,
    };
    erg_time_machine_init(&kind->machine, gpu, nodes);
    return 0;
}
