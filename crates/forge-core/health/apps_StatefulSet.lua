-- A StatefulSet: every pod that is wanted is ready, available, and of the last revision. As Argo CD's own check, but
-- * pods that are ready and not yet available (minReadySeconds) are waited for;
-- * with OnDelete, pods of an older revision are Suspended, not Healthy: the change is not there until somebody deletes
--   them, and what depends on it must not start before (INV-1 holds for upgrades too);
-- * a condition that says failure makes it Degraded. Kubernetes itself sets none; what manages StatefulSets may.
local spec, status = obj.spec or {}, obj.status or {}
local generation = obj.metadata.generation or 0
local wanted = spec.replicas or 1
local ready, updated = status.readyReplicas or 0, status.updatedReplicas or 0
local strategy = spec.updateStrategy or {}

for _, condition in ipairs(status.conditions or {}) do
  local failure = condition.type == "Failed" or condition.type == "ReplicaFailure" or condition.type == "Degraded"
  if failure and condition.status == "True" then
    return {status = "Degraded", message = condition.message or condition.reason or condition.type}
  end
end
if (status.observedGeneration or 0) == 0 or status.observedGeneration < generation then
  return {status = "Progressing", message = "the last change has not been seen yet"}
end
if ready < wanted then
  return {status = "Progressing", message = ready .. " of " .. wanted .. " pods are ready"}
end
-- Servers that are too old to count available pods leave the field out.
local available = status.availableReplicas
if available ~= nil and available < wanted then
  return {status = "Progressing", message = available .. " of " .. wanted .. " pods are available"}
end
local stale = status.updateRevision ~= status.currentRevision
if strategy.type == "OnDelete" then
  if stale and updated < wanted then
    return {status = "Suspended", message = updated .. " of " .. wanted .. " pods are updated; delete the others"}
  end
  return {status = "Healthy", message = ready .. " of " .. wanted .. " pods are ready"}
end
-- A partition is what the manifest asks for: pods below it stay as they are.
local partition = (strategy.rollingUpdate or {}).partition or 0
if updated < wanted - partition then
  return {status = "Progressing", message = updated .. " of " .. (wanted - partition) .. " pods are updated"}
end
if strategy.rollingUpdate == nil and stale then
  return {status = "Progressing", message = "the roll-out of " .. (status.updateRevision or "") .. " is not finished"}
end
return {status = "Healthy", message = ready .. " of " .. wanted .. " pods are ready"}
