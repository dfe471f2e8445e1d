-- A cluster of Zalando's operator: Running is well, Creating and Updating go on, everything else that the operator
-- writes is a failure (CreateFailed, UpdateFailed, SyncFailed, Invalid). As Argo CD's own check; with an entry in
-- argocd-cm it also counts when the object is missing, which Argo CD overlooks otherwise. It is what the operator did
-- last, not what the pods do now.
local status = (obj.status or {}).PostgresClusterStatus or ""

if status == "" then
  return {status = "Progressing", message = "the operator has not looked at it yet"}
end
if status == "Running" then
  return {status = "Healthy", message = status}
end
if status == "Creating" or status == "Updating" then
  return {status = "Progressing", message = status}
end
return {status = "Degraded", message = status}
