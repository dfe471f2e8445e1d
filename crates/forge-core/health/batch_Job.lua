-- A Job: Healthy when it is complete, and not before. As Argo CD's own check, but only conditions that are True count:
-- a Job that was suspended and goes on keeps the condition Suspended with status False, which Argo CD takes for an end.
-- A Job whose failure is decided (FailureTarget) is Degraded while its last pods still end.
local status = obj.status or {}

local set = {}
for _, condition in ipairs(status.conditions or {}) do
  if condition.status == "True" then
    set[condition.type] = condition
  end
end

local function said(condition, text)
  local words = condition.message or ""
  if words == "" then
    words = condition.reason or ""
  end
  if words == "" then
    return text
  end
  return words
end

local failed = set.Failed or set.FailureTarget
if failed ~= nil then
  return {status = "Degraded", message = said(failed, "the Job failed")}
end
if set.Complete ~= nil then
  return {status = "Healthy", message = said(set.Complete, "complete")}
end
if set.Suspended ~= nil or (obj.spec or {}).suspend == true then
  return {status = "Suspended", message = said(set.Suspended or {}, "suspended")}
end
local active, succeeded, failures = status.active or 0, status.succeeded or 0, status.failed or 0
return {
  status = "Progressing",
  message = "pods: " .. active .. " active, " .. succeeded .. " succeeded, " .. failures .. " failed",
}
