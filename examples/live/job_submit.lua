-- For JobSubmitPlugins=lua (slurm.conf): jobs of "ergon submit" wait until ergon places them, and their
-- users leave to ergon what it asks Slurm for. Optional: without it ergon overwrites such changes.
-- Slurm 22.05 shows users of scontrol "Access/permission denied" in place of the whole sentence.

local function is_live(comment)
    return comment ~= nil and string.sub(comment, 1, 6) == "ergon:"
end

function slurm_job_submit(job_desc, part_list, submit_uid)
    if is_live(job_desc.comment) then
        job_desc.priority = 0 -- held
        job_desc.requeue = 1
    end
    return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    if not is_live(job_rec.comment) or modify_uid == 0 or modify_uid ~= job_rec.user_id then
        return slurm.SUCCESS
    end
    local what = nil
    if job_desc.req_nodes ~= nil then
        what = "its nodes"
    elseif job_desc.tres_per_node ~= nil then
        what = "its GPUs"
    elseif job_desc.priority ~= slurm.NO_VAL then
        what = "its priority, or hold or release it"
    elseif job_desc.min_nodes ~= slurm.NO_VAL then
        what = "its number of nodes"
    end
    if what == nil then
        return slurm.SUCCESS
    end
    slurm.log_user("job %u is placed by ergon: you cannot change %s; \"ergon jobs\" says why it waits, " ..
        "\"scancel %u\" ends it, and after \"scontrol update JobId=%u Comment=\" it is yours alone",
        job_rec.job_id, what, job_rec.job_id, job_rec.job_id)
    return slurm.ESLURM_ACCESS_DENIED
end

slurm.log_info("ergon's job_submit.lua is loaded")
return slurm.SUCCESS
