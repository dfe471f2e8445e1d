-- A TemporalCluster of temporal-operator: condition Ready is True for this generation, and no service runs another
-- version than the cluster says it has. The operator sets ReconcileError to True and may never take it back, so it only
-- counts where nothing newer speaks against it: Ready is not decided, or was decided before the error.
local status = obj.status or {}
local generation = obj.metadata.generation or 0

local ready, failed = nil, nil
for _, condition in ipairs(status.conditions or {}) do
  local current = (condition.observedGeneration or generation) >= generation
  if condition.type == "Ready" and current then
    ready = condition
  elseif condition.type == "ReconcileError" and condition.status == "True" and current then
    failed = condition
  end
end

local version = status.version or ""
local waiting, other = {}, {}
for _, service in ipairs(status.services or {}) do
  if service.ready ~= true then
    table.insert(waiting, service.name or "")
  end
  if service.version ~= nil and service.version ~= version then
    table.insert(other, (service.name or "") .. " " .. service.version)
  end
end
table.sort(waiting)
table.sort(other)

if ready ~= nil and ready.status == "True" then
  if #other > 0 then
    return {status = "Progressing", message = "not at version " .. version .. ": " .. table.concat(other, ", ")}
  end
  return {status = "Healthy", message = "ready at version " .. version}
end
local decided = ready ~= nil and ready.status == "False"
-- Times of this form compare as texts.
if failed ~= nil and (not decided or (failed.lastTransitionTime or "") > (ready.lastTransitionTime or "")) then
  return {status = "Degraded", message = (failed.reason or "ReconcileError") .. ": " .. (failed.message or "")}
end
if not decided then
  return {status = "Progressing", message = "the operator has not decided about this generation yet"}
end
return {status = "Progressing", message = "not ready: " .. table.concat(waiting, ", ")}
