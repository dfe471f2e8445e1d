-- A CRD: its names are accepted and it is established, so that objects of it can be made. As Argo CD's own check, but
-- * a CRD that is being installed is Progressing, not Degraded: a sync with waves would fail on it for nothing;
-- * names that nobody has judged yet are waited for, and so is a change that the server has not seen;
-- * with an entry in argocd-cm it also counts when it is missing, which Argo CD overlooks otherwise.
local status = obj.status or {}
local generation = obj.metadata.generation or 0

local found = {}
for _, condition in ipairs(status.conditions or {}) do
  found[condition.type or ""] = condition
end
local function is(kind, value)
  return found[kind] ~= nil and found[kind].status == value
end
local function said(kind, text)
  local message = found[kind].message or ""
  if message == "" then
    return text
  end
  return text .. ": " .. message
end

if is("Terminating", "True") then
  return {status = "Progressing", message = said("Terminating", "it is being removed")}
end
if is("NamesAccepted", "False") then
  return {status = "Degraded", message = said("NamesAccepted", "its names are not accepted")}
end
if is("NonStructuralSchema", "True") then
  return {status = "Degraded", message = said("NonStructuralSchema", "its schema is not structural")}
end
if is("Established", "False") and found.Established.reason ~= "Installing" then
  return {status = "Degraded", message = said("Established", "it is not established")}
end
if not is("Established", "True") or not is("NamesAccepted", "True") then
  return {status = "Progressing", message = "it is being installed"}
end
if (status.observedGeneration or generation) < generation then
  return {status = "Progressing", message = "the last change has not been seen yet"}
end
return {status = "Healthy", message = "established"}
