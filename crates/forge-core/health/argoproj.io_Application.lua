-- An Application inside another one (app-of-apps): as well as it says itself. Argo CD has no check of its own for it.
-- Argo CD leaves a child that is Missing or Unknown out of its parent's health, which makes the parent Healthy. Both
-- count as Progressing here: a parent waits for its children, and is not called broken before they had their turn.
local health = (obj.status or {}).health or {}
local status, message = health.status or "", health.message or ""

if status == "" then
  return {status = "Progressing", message = "Argo CD has not assessed it yet"}
end
if status == "Missing" or status == "Unknown" then
  if message ~= "" then
    message = ": " .. message
  end
  return {status = "Progressing", message = "its health is " .. status .. message}
end
return {status = status, message = message}
