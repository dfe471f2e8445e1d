//! The checks: what each is called, what it proves, and the page that explains what it finds.

use serde::{Deserialize, Serialize};

use crate::code::Code;

macro_rules! checks {
    ($($variant:ident $id:literal $code:ident $title:literal;)*) => {
        /// A check. Its name is stable.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Check {
            $(#[doc = $title] $variant,)*
        }

        impl Check {
            /// All checks, in the order in which they are reported.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The stable name.
            pub const fn id(self) -> &'static str {
                match self { $(Self::$variant => $id,)* }
            }

            /// The code whose page explains what it finds.
            pub const fn code(self) -> Code {
                match self { $(Self::$variant => Code::$code,)* }
            }

            /// What is true when it finds nothing.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)* }
            }
        }
    };
}

checks! {
    Api           "api"            Unreachable         "the API server answers";
    Version       "version"        KubernetesVersion   "the version of Kubernetes does";
    Clock         "clock"          ClocksDiffer        "the clocks agree";
    Rights        "rights"         RightsMissing       "the account has the rights that it needs";
    Policies      "policies"       NoAdmissionPolicies "admission policies are served";
    Nodes         "nodes"          NoUsableNode        "a node can take pods";
    Storage       "storage"        NoStorage           "there is a default StorageClass";
    Namespaces    "namespaces"     NamespaceGoing      "no namespace is being deleted";
    Limits        "limits"         LimitsTooTight      "quotas and limits leave room for a run";
    PodSecurity   "pod-security"   PodSecurity         "pod security lets pods of a run pass";
    ArgoCd        "argo-cd"        ArgoNotAsSaid       "Argo CD is as forge.yaml says";
    ArgoWorkflows "argo-workflows" ArgoNotAsSaid       "Argo Workflows is as forge.yaml says";
    ArgoEvents    "argo-events"    ArgoNotAsSaid       "Argo Events is as forge.yaml says";
    Definitions   "definitions"    ForeignDefinitions  "the definitions of Argo can be used";
    Own           "own"            ForeignObject       "what has a name of Forge's own is Forge's";
    Merged        "merged"         NotMerged           "what the owner of Argo CD makes for Forge is there";
    Windows       "windows"        ForeignWindows      "no sync window stops a run";
    Pod           "pod"            PodNotStarted       "a pod of ours starts";
    Image         "image"          ImageNotPulled      "the image is pulled";
    Volume        "volume"         NoStorage           "a volume is bound";
    Leftovers     "leftovers"      LeftBehind          "nothing of a check is left";
}

impl std::fmt::Display for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_written_and_read_by_its_name_and_no_two_share_one() {
        let mut names: Vec<&str> = Check::ALL.iter().map(|check| check.id()).collect();
        for check in Check::ALL {
            assert_eq!(serde_json::json!(check), check.id());
            assert_eq!(serde_json::from_value::<Check>(serde_json::json!(check.id())).unwrap(), *check);
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Check::ALL.len());
    }
}
